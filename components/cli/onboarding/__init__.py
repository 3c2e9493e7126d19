"""From a labelled file to a params.yaml: what is in the files, and the settings that follow."""
