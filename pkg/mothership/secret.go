package mothership

import "fmt"

// Secret is a text that never prints: every way of formatting or marshalling it shows three stars. Reveal gives the text.
type Secret string

const stars = "***"

// Reveal returns the secret text itself.
func (s Secret) Reveal() string { return string(s) }

// String returns three stars.
func (Secret) String() string { return stars }

// GoString returns three stars.
func (Secret) GoString() string { return stars }

// Format prints three stars for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(stars)) }

// MarshalJSON returns three stars.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + stars + `"`), nil }

// MarshalText returns three stars.
func (Secret) MarshalText() ([]byte, error) { return []byte(stars), nil }
