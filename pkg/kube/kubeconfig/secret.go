package kubeconfig

import "go.uber.org/zap/zapcore"

const hidden = "***"

// Kubeconfig is the text of a kubeconfig. It is a secret: whatever prints, formats, logs or marshals it shows ***.
// Reveal gives the text.
type Kubeconfig string

// Reveal returns the text itself, for the one place that stores it, sends it or connects with it.
func (k Kubeconfig) Reveal() string { return string(k) }

// String hides the text.
func (Kubeconfig) String() string { return hidden }

// GoString hides the text from %#v.
func (Kubeconfig) GoString() string { return hidden }

// MarshalJSON hides the text.
func (Kubeconfig) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// MarshalText hides the text.
func (Kubeconfig) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalLogObject hides the text from a log that takes it as an object.
func (Kubeconfig) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("kubeconfig", hidden)
	return nil
}
