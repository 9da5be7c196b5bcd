"""The service of translations: requests to sentences, and results to answers."""
