package reconciler

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

func TestResultsHoldNoSecret(t *testing.T) {
	t.Parallel()
	t.Run("L10 errors, warnings and what is said of objects", func(t *testing.T) {
		t.Parallel()
		const secret = "hunter2-hunter2"
		task := &Task{}
		task.warnings = []string{"warned of " + secret}
		task.note(reconcilerv1.Resource{Kind: "Secret", Name: "x", Message: "says " + secret})
		j := &job{task: task, lines: &lastLines{}, scrub: newScrubber(reconcilerv1.Task{
			Configuration: map[string]json.RawMessage{"db.password": []byte(`"` + secret + `"`)},
		})}
		result := j.result(errors.New("failed with " + secret))
		require.Equal(t, "failed with ***", result.err)
		require.Equal(t, []string{"warned of ***"}, result.warnings)
		require.Equal(t, "says ***", result.resources[0].Message)
	})
}
