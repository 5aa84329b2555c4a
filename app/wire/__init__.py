"""The records of all topics: their fields, their JSON and Protobuf forms, and their validation."""
