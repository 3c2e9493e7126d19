"""Parts that more than one family uses: dropouts, the LSTM, attention, cross entropy over a vocabulary."""
