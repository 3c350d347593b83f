package fedtest

// CheckLeaksWithin is CheckLeaks with a deadline of the test's choice.
var CheckLeaksWithin = checkLeaks
