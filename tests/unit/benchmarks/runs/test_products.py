"""The graph of matrix products alone: those of the decoder's step, on its weights."""

from benchmarks.places import DEMO
from benchmarks.runs.products import MatrixProducts
from translane_server.bundle.bundle import load_bundle


def test_every_projection_of_the_demo_is_among_its_products():
    bundle = load_bundle(DEMO)
    layers = bundle.manifest.architecture.decoder_layers
    products = MatrixProducts(bundle, threads=1)
    assert products.count == 6 * layers + 1  # packed, out, q, out, up, down; and the logits
    products.bind(3)()
