"""The packages that others install (deploy/packages), before a real gateway, worker and Kafka."""
