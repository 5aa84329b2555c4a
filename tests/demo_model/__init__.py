"""What the demo model is made from.

`python -m tests.demo_model.train` generates dialogues, trains on them and saves the checkpoint of `models/demo`.
`python -m tests.demo_model.evaluate` asks the checkpoint questions that it has never seen and prints how often it is
right. `python -m tests.demo_model.examples` writes the dialogues that come with it.
"""
