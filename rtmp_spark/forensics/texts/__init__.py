"""The words of the catalogue, one module per family. Data only: catalogue.py makes something of them."""
