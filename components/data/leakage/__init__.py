"""The stage `leakage`: texts of dev and test in what the models were trained on."""
