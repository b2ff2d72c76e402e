"""What a program holds as what a file can hold: pictures, sound, histograms, tables."""
