package cli

import "fmt"

// ExitError passes a child's exit code through; nothing is printed for it.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("command exited with code %d", e.Code) }
