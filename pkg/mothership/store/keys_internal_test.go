package store

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

func TestKeysFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyset.json")
	require.NoError(t, CreateKeys(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.ErrorIs(t, CreateKeys(path), os.ErrExist, "a keyset is never overwritten")

	first, err := LoadKeys(path)
	require.NoError(t, err)
	second, err := LoadKeys(path)
	require.NoError(t, err)
	sealed, err := first.seal([]byte("text"), binding("t", "c", "r", 1))
	require.NoError(t, err)
	plain, err := second.open(sealed, binding("t", "c", "r", 1))
	require.NoError(t, err)
	require.Equal(t, "text", string(plain))
	require.NotContains(t, fmt.Sprintf("%v %+v %s", first, first, first), "primaryKeyId")
}

func TestKeysBindValuesToTheirRow(t *testing.T) {
	t.Parallel()
	keys, err := NewKeys()
	require.NoError(t, err)
	one, err := keys.seal([]byte("text"), binding("t", "c", "r", 1))
	require.NoError(t, err)
	two, err := keys.seal([]byte("text"), binding("t", "c", "r", 1))
	require.NoError(t, err)
	require.NotEqual(t, one, two, "F32: equal values look different")
	require.NotContains(t, string(one), "text")
	for _, other := range [][]byte{binding("t", "c", "r", 2), binding("t", "c", "s", 1), binding("t", "d", "r", 1), binding("u", "c", "r", 1)} {
		_, err := keys.open(one, other)
		require.ErrorIs(t, err, ErrKeyset, "swapped into %s", other)
	}
	others, err := NewKeys()
	require.NoError(t, err)
	_, err = others.open(one, binding("t", "c", "r", 1))
	require.ErrorIs(t, err, ErrKeyset)
}

func TestLoadKeysRefusesOtherFiles(t *testing.T) {
	t.Parallel()
	_, err := LoadKeys(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, text := range []string{"", "{}", "c2VjcmV0", `{"primaryKeyId":1,"key":[{"keyData":{"value":"c2VjcmV0"}}]}`} {
		path := filepath.Join(t.TempDir(), "keyset.json")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := LoadKeys(path)
		require.ErrorIs(t, err, ErrKeyset, "%q", text)
		require.NotContains(t, err.Error(), "c2VjcmV0")
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	keys, err := NewKeys()
	require.NoError(t, err)
	token, err := keys.token("op", 3)
	require.NoError(t, err)
	attempt, err := keys.attempt("op", token)
	require.NoError(t, err)
	require.Equal(t, 3, attempt)
	others, err := NewKeys()
	require.NoError(t, err)
	foreign, err := others.token("op", 3)
	require.NoError(t, err)
	for _, wrong := range []string{"", ".", "3.", "3", "4" + token[1:], "03" + token[1:], "-3" + token[1:], token[:len(token)-1], token + "A", token + "\n", foreign, "99999999999999999999.x"} {
		_, err := keys.attempt("op", wrong)
		require.ErrorIs(t, err, mothership.ErrUnauthorized, "%q", wrong)
	}
	_, err = keys.attempt("another", token)
	require.ErrorIs(t, err, mothership.ErrUnauthorized)
}
