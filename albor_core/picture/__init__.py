"""Curves as pictures: SVG and CSV written here, PNG by Pillow."""
