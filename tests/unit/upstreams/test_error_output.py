"""What is kept of a child's standard error."""

from ringback.upstreams.transports.error_output import OUTPUT_LENGTH_MAX, ErrorOutput, find_error_output


def test_the_last_five_lines_are_kept_without_control_characters() -> None:
    output = ErrorOutput()
    output.append(b"".join(b"line %d\r\n\n" % number for number in range(9)) + b"\x1b[31mno token\x07\n")
    output.exit_code = 2

    assert output.describe() == "exit code 2: line 5 | line 6 | line 7 | line 8 | [31mno token"


def test_a_long_line_is_cut_at_its_beginning() -> None:
    output = ErrorOutput()
    for _ in range(3):
        output.append("é".encode() * 70_000 + b"the reason")

    assert output.describe() == ("é" * OUTPUT_LENGTH_MAX + "the reason")[-OUTPUT_LENGTH_MAX:]


def test_values_of_the_configured_variables_are_masked() -> None:
    output = ErrorOutput(secrets=["acme-secret-token", "true"])
    output.append(b"true: acme-secret-token is refused")

    assert output.describe() == "true: *** is refused"


def test_a_child_that_wrote_nothing_leaves_its_error_as_it_is() -> None:
    error = OSError()
    ErrorOutput().add_to(error)

    assert find_error_output(error) is None
