"""Files as streams of rows, sentences and questions: what their formats say, not what becomes of them.

Ingestion reads corpora with them, fine-tuning labelled data. They know nothing of either.
"""
