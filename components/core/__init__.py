"""What every package uses: errors, files that are written whole, progress, processors."""
