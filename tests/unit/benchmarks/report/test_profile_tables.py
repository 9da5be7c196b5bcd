"""The tables of what steps' nodes are for."""

from benchmarks.report.profile_tables import of_models


def test_a_table_has_a_row_for_each_number_of_rows_and_leaves_out_what_takes_no_time():
    def times(step):
        return {"step": step, "nodes": 7, "roles": {"products": 100.0, "norms": 20.0, "activations": 0.0}}

    record = {
        "machine": {"time": "now", "processor": "a processor", "versions": {"onnxruntime": "1"}},
        "usage": {"others": 0.25},
        "models": {"demo-int8": {1: times(150.0), 8: times(110.0)}},
    }
    lines = of_models(record).splitlines()
    assert lines[0].startswith("Measured now on a processor, one thread, onnxruntime 1; other programs used 25%")
    assert lines[2:] == [
        "### demo, int8",
        "",
        "| rows | nodes | step | products | norms | rest | step / products |",
        "|---:|---:|---:|---:|---:|---:|---:|",
        "| 1 | 7 | 0.150 | 0.100 | 0.020 | 0.030 | 1.50 |",
        "| 8 | 7 | 0.110 | 0.100 | 0.020 | 0.000 | 1.10 |",
    ]
