"""Private data: found before a model reads it, hidden behind placeholders, and put back for the reader.

    request, history, results of tools --analyzer--> values --mask--> text with placeholders --> model, index, cache
                                                                                                    |
    reader <-- text with the values <-------------------- put back <-------------------- answer <---'

| module | subject |
|---|---|
| analyzer.py | find private values in texts (Presidio, spaCy) |
| mask.py | values to placeholders and back |
| put_back.py | put values back into an answer while it is generated |
| secret.py | the key of a partition's placeholders |
"""
