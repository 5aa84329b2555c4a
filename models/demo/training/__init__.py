"""Train the demo model (`python -m models.demo.training.train`) and evaluate it (`...training.evaluate`)."""
