"""The errors of the package carry what they are about as attributes."""

from cfg_fsm.errors import BadLine, CfgFsmError, MissingExtra


def test_the_errors_of_the_package_say_where_and_what_as_attributes():
    line = BadLine("trace.jsonl", 7, "no such event")
    assert (line.path, line.line, line.why, str(line)) == (
        "trace.jsonl",
        7,
        "no such event",
        "trace.jsonl:7: no such event",
    )
    extra = MissingExtra("drawing", "render")
    assert extra.extra == "render"
    assert "pip install 'cfg_fsm[render]'" in str(extra)
    assert isinstance(line, CfgFsmError)
    assert isinstance(extra, CfgFsmError)
