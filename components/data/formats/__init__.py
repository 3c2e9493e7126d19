"""File formats as streams of rows, sentences or questions, for corpora, labelled data and prediction alike."""
