"""Private values in texts: hidden behind placeholders from models, and put back for readers.

texts --mask--> texts with placeholders --> model
reader <-- text with the values <-- put back <-- answer
"""
