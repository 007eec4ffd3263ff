package store

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// maxKeyset is the size that a keyset file may have, in bytes.
const maxKeyset = 1 << 20

// Keys encrypt what is secret in the database and make the tokens of callbacks: AES-256-GCM with a Tink keyset. What was
// encrypted with any key of the keyset can be read; new values take the primary one.
type Keys struct {
	handle *keyset.Handle
	aead   tink.AEAD
}

// NewKeys makes a keyset in memory.
func NewKeys() (*Keys, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return keysOf(handle)
}

// LoadKeys reads a keyset file.
func LoadKeys(path string) (*Keys, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the keyset: %w", err)
	}
	defer func() { _ = file.Close() }()
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(io.LimitReader(file, maxKeyset)))
	if err != nil {
		// The cause may quote the file, and with it the key.
		return nil, fmt.Errorf("%w: %q is not a keyset file", ErrKeyset, path)
	}
	return keysOf(handle)
}

// CreateKeys writes a file with a new keyset that only its owner can read. It never overwrites one: then the error is
// [os.ErrExist].
func CreateKeys(path string) (err error) {
	keys, err := NewKeys()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := insecurecleartextkeyset.Write(keys.handle, keyset.NewJSONWriter(&text)); err != nil {
		return fmt.Errorf("encode the keyset: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create the keyset: %w", err)
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			_ = os.Remove(path)
		}
	}()
	if _, err := file.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write the keyset: %w", err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("write the keyset: %w", err)
	}
	return nil
}

func keysOf(handle *keyset.Handle) (*Keys, error) {
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("%w: not a keyset for AES-256-GCM", ErrKeyset)
	}
	return &Keys{handle: handle, aead: primitive}, nil
}

// String keeps the key out of logs.
func (*Keys) String() string { return "***" }

// binding is the associated data of a value: where it stands, so that values can't be swapped between rows.
func binding(table, column, runtimeID string, version int64) []byte {
	return fmt.Appendf(nil, "%s/%s/%s/%d", table, column, runtimeID, version)
}

func (k *Keys) seal(plain, binding []byte) ([]byte, error) {
	sealed, err := k.aead.Encrypt(plain, binding)
	if err != nil {
		return nil, fmt.Errorf("encrypt %s: %w", binding, err)
	}
	return sealed, nil
}

// open decrypts; the error is ErrKeyset if no key fits, or the value stood elsewhere.
func (k *Keys) open(sealed, binding []byte) ([]byte, error) {
	plain, err := k.aead.Decrypt(sealed, binding)
	if err != nil {
		return nil, fmt.Errorf("%w: %s can't be decrypted", ErrKeyset, binding)
	}
	return plain, nil
}

// token makes the callback token of an attempt. It encrypts nothing: that it can be opened with the operation and the
// attempt as associated data is what proves that it is ours.
func (k *Keys) token(correlationID string, attempt int) (string, error) {
	number := strconv.Itoa(attempt)
	sealed, err := k.aead.Encrypt(nil, tokenBinding(correlationID, number))
	if err != nil {
		return "", fmt.Errorf("make a callback token: %w", err)
	}
	return number + "." + base64.RawURLEncoding.EncodeToString(sealed), nil
}

// attempt returns the attempt that a token was made for; the error is [mothership.ErrUnauthorized] if we didn't make it for
// this operation.
func (k *Keys) attempt(correlationID, token string) (int, error) {
	number, text, _ := strings.Cut(token, ".")
	attempt, err := strconv.Atoi(number)
	if err != nil || attempt <= 0 || strconv.Itoa(attempt) != number || strings.ContainsAny(text, "\r\n") { // Base64 passes over line ends.
		return 0, fmt.Errorf("%w: the callback has no valid token", mothership.ErrUnauthorized)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return 0, fmt.Errorf("%w: the callback has no valid token", mothership.ErrUnauthorized)
	}
	if _, err := k.aead.Decrypt(sealed, tokenBinding(correlationID, number)); err != nil {
		return 0, fmt.Errorf("%w: the callback has no valid token", mothership.ErrUnauthorized)
	}
	return attempt, nil
}

func tokenBinding(correlationID, attempt string) []byte {
	return []byte("callback/" + correlationID + "/" + attempt)
}
