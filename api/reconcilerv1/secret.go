package reconcilerv1

import "fmt"

// Secret is text that goes over the wire as it is and prints as ***, so that it never reaches a log line by accident.
type Secret string

// Reveal returns the text itself.
func (s Secret) Reveal() string { return string(s) }

// String implements [fmt.Stringer].
func (Secret) String() string { return "***" }

// Format implements [fmt.Formatter]: no verb shows the text.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("***")) }
