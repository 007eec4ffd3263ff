package apply_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

func TestFence(t *testing.T) {
	t.Parallel()

	t.Run("a lower fence changes nothing", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"))
		f.pass.Fence = 7
		f.apply()
		f.pass.Fence = 6
		f.render(configMap("one", "2")).input("in2")
		f.count.reset()
		_, err := f.tryApply()
		require.ErrorIs(t, err, apply.ErrStale)
		_, err = f.engine.Delete(ctxOf(t), f.pass)
		require.ErrorIs(t, err, apply.ErrStale)
		require.Empty(t, f.count.writes())
		f.pass.Fence = 0 // a task without a fence claims unconditionally
		f.apply()
		require.Equal(t, "2", nested[string](t, f.get("v1", "ConfigMap", "one"), "data", "key"))
		f.pass.Fence = 6
		_, err = f.tryApply()
		require.ErrorIs(t, err, apply.ErrStale, "and keeps the one that is there")
	})

	t.Run("a claim that comes between makes the older one stale", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		newer := f.as(f.pass.Component)
		newer.pass.Fence = 2
		newer.render(configMap("one", "new"))
		f.pass.Render = func(context.Context) (*apply.Rendered, error) {
			newer.apply()
			return &apply.Rendered{Objects: objects(t, configMap("one", "old"))}, nil
		}
		_, err := f.tryApply()
		require.ErrorIs(t, err, apply.ErrStale)
		require.Equal(t, "new", nested[string](t, f.get("v1", "ConfigMap", "one"), "data", "key"))
	})

	t.Run("a crash between claim and apply leaves nothing unlisted", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"), configMap("two", "1"))
		var writes atomic.Int64
		died := errors.New("died")
		// the claim and one object are written, then nothing more
		ctx := kube.WithWriteGuard(ctxOf(t), func() error {
			if writes.Add(1) > 2 {
				return died
			}
			return nil
		})
		f.engine = apply.New(apply.Config{InventoryNamespace: f.invNS, Parallel: 1})
		_, err := f.engine.Apply(ctx, f.pass)
		require.ErrorIs(t, err, died)
		require.ErrorIs(t, err, kube.ErrWriteRefused)
		require.NotEqual(t, f.gone("v1", "ConfigMap", "one"), f.gone("v1", "ConfigMap", "two"), "one of them was written")

		f.pass.Fence = 2
		f.apply()
		require.True(t, f.apply().Unchanged)
		f.delete()
		require.True(t, f.gone("v1", "ConfigMap", "one"))
		require.True(t, f.gone("v1", "ConfigMap", "two"))
	})

	t.Run("F59 an inventory that can't be written is an error with its own text", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, func(cfg *apply.Config, _ *apply.Pass) { cfg.MaxInventoryBytes = 10 })
		_, err := f.render(configMap("one", "1")).tryApply()
		require.ErrorIs(t, err, apply.ErrInventory)
		require.True(t, f.gone("v1", "ConfigMap", "one"))
	})

	t.Run("an inventory that can't be read is an error, not a new one", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"))
		f.apply()
		_, err := f.cluster.Patch(ctxOf(t), f.resourceOf("v1", "Secret"), f.invNS, "reconciler."+strings.ToLower(f.pass.Component),
			kube.MergePatch, map[string]any{"data": map[string]any{"inventory": "AAAA"}}, "somebody")
		require.NoError(t, err)
		_, err = f.tryApply()
		require.ErrorIs(t, err, apply.ErrInventory)
	})

	t.Run("many components of a new cluster at once", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, func(cfg *apply.Config, p *apply.Pass) { cfg.InventoryNamespace = p.Namespace + "-inventory" })
		f.pass.Namespace = f.ns + "-own"
		results := make(chan error)
		all := []*fixture{}
		for i := range 8 {
			c := f.as(fmt.Sprintf("%s-%d", f.pass.Component, i)).render(configMap(fmt.Sprintf("c%d", i), "1"))
			all = append(all, c)
			go func() {
				_, err := c.engine.Apply(context.WithoutCancel(t.Context()), c.pass)
				results <- err
			}()
		}
		for range all {
			require.NoError(t, <-results)
		}
		for _, c := range all {
			require.True(t, c.apply().Unchanged)
			go func() {
				_, err := c.engine.Delete(context.WithoutCancel(t.Context()), c.pass)
				results <- err
			}()
		}
		for range all {
			require.NoError(t, <-results)
		}
		for _, name := range []string{f.invNS, f.pass.Namespace} {
			_, err := f.cluster.Get(ctxOf(t), f.resourceOf("v1", "Namespace"), "", name)
			require.True(t, kube.IsNotFound(err), name)
		}
	})

	t.Run("component names that no Secret may have", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		a, b := f.as("A_b.-c").render(configMap("one", "1")), f.as("a-b.-c").render(configMap("two", "1"))
		a.apply()
		b.apply()
		require.True(t, a.apply().Unchanged)
		require.True(t, b.apply().Unchanged)
		a.delete()
		require.True(t, f.gone("v1", "ConfigMap", "one"))
		require.False(t, f.gone("v1", "ConfigMap", "two"))
		b.delete()
	})

	t.Run("what a newer release wrote into the inventory stays", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"))
		f.apply()
		require.NotEmpty(t, f.inventory())
		f.patchInventory(func(inv map[string]any) { inv["future"] = map[string]any{"kept": true} })
		f.render(configMap("one", "2")).input("in2").apply()
		require.Equal(t, map[string]any{"kept": true}, f.inventory()["future"])
	})
}

func TestErrorsHeal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		heal apply.Heals
	}{
		"400":           {&kube.APIError{Code: http.StatusBadRequest}, apply.HealsNever},
		"413":           {&kube.APIError{Code: http.StatusRequestEntityTooLarge}, apply.HealsNever},
		"422":           {&kube.APIError{Code: http.StatusUnprocessableEntity}, apply.HealsNever},
		"typed":         {&kube.APIError{Code: http.StatusInternalServerError, Typed: true}, apply.HealsNever},
		"webhook":       {&kube.APIError{Code: http.StatusInternalServerError, Webhook: "x", WebhookDown: true}, apply.HealsNow},
		"no match":      {&kube.NoMatchError{}, apply.HealsNow},
		"409":           {&kube.APIError{Code: http.StatusConflict}, apply.HealsNow},
		"409 of owners": {&kube.APIError{Code: http.StatusConflict, Conflicts: []kube.Conflict{{}}}, apply.HealsLater},
		"429":           {&kube.APIError{Code: http.StatusTooManyRequests}, apply.HealsNow},
		"403 terminating": {
			&kube.APIError{Code: http.StatusForbidden, Causes: []kube.Cause{{Type: "NamespaceTerminating"}}}, apply.HealsNow,
		},
		"refused by a webhook": {&kube.APIError{Code: http.StatusForbidden, Webhook: "x"}, apply.HealsLater},
		"403":                  {&kube.APIError{Code: http.StatusForbidden}, apply.HealsLater},
		"503":                  {&kube.APIError{Code: http.StatusServiceUnavailable}, apply.HealsLater},
		"stale":                {apply.ErrStale, apply.HealsLater},
		"cancelled":            {context.Canceled, apply.HealsLater},
		"never":                {apply.Never(errors.New("x")), apply.HealsNever},
		"unknown":              {errors.New("x"), apply.HealsLater},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.heal, apply.Heal(tc.err))
			require.Equal(t, tc.heal == apply.HealsNever, apply.Permanent(tc.err))
		})
	}
}
