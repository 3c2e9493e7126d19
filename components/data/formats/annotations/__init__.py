"""Exports of annotation tools as streams of annotated texts, and predictions in the same forms.

Label Studio, doccano and Prodigy share one record (`records.Annotated`). Data sets of Hugging Face are
tables (`hub`).
"""
