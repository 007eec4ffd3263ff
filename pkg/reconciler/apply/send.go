package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// maxRounds is how often one object is sent again with other contents or more force before that is an error.
const maxRounds = 6

// send brings one object to what is declared. It does not repeat what only time heals; see retry.
func (r *run) send(ctx context.Context, o *object) error {
	resource, err := r.resource(r.prep, o)
	if err != nil {
		return err
	}
	r.rescope(o, resource)
	live, err := r.liveFor(ctx, o, resource)
	if err != nil {
		return err
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		if err := r.waitGone(ctx, resource, live); err != nil {
			return err
		}
		live = nil
	}
	body, err := r.body(ctx, o, live)
	if err != nil {
		return err
	}
	w, err := r.applyRounds(ctx, o, resource, body)
	if missing := missingNamespace(err); missing != "" {
		if err := r.ensureNamespace(ctx, missing, false); err != nil {
			return err
		}
		w, err = r.applyRounds(ctx, o, resource, body)
	}
	if errors.Is(err, errSkip) {
		return r.skipped(ctx, o, resource)
	}
	if kube.IsCode(err, http.StatusUnprocessableEntity) && !isTyped(err) {
		w, err = r.refused(ctx, o, resource, body, err)
		if errors.Is(err, errSkip) {
			return nil
		}
	}
	if err != nil {
		return unserved(err, o)
	}
	if w.Object.GetDeletionTimestamp() != nil { // it answered 200, and goes all the same
		if err := r.waitGone(ctx, resource, w.Object); err != nil {
			return err
		}
		if w, err = r.applyRounds(ctx, o, resource, body); err != nil {
			return err
		}
	}
	r.applied(o, live, w)
	return nil
}

// errSkip says that nothing more is to be done for this object in this pass.
var errSkip = errors.New("skipped")

// rescope moves an entry that was made before the scope of its kind was known.
func (r *run) rescope(o *object, resource kube.Resource) {
	if resource.Namespaced || o.key.namespace == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[o.key]
	delete(r.entries, o.key)
	delete(r.resources, o.key)
	unstructured.RemoveNestedField(o.obj.Object, "metadata", "namespace")
	o.key.namespace, e.Namespace = "", ""
	// the digest is that of what is declared where the scope is known
	annotations := o.obj.GetAnnotations()
	delete(annotations, AnnotationDigest)
	o.obj.SetAnnotations(annotations)
	o.digest = digestOf(o.obj.Object)
	annotate(o.obj, AnnotationDigest, o.digest)
	r.entries[o.key] = e
}

// unserved turns the 404 for a path that is not served (yet) into what it means.
func unserved(err error, o *object) error {
	var api *kube.APIError
	if errors.As(err, &api) && api.Code == http.StatusNotFound && api.Missing == "" {
		return &kube.NoMatchError{GVK: o.gvk}
	}
	return err
}

func isTyped(err error) bool {
	var api *kube.APIError
	return errors.As(err, &api) && api.Typed
}

// applied notes an accepted object.
func (r *run) applied(o *object, live *unstructured.Unstructured, w *kube.Write) {
	action := ActionConfigured
	switch {
	case w.Created:
		action = ActionCreated
	case live != nil && live.GetResourceVersion() == w.Object.GetResourceVersion():
		action = ActionUnchanged
	}
	r.writes.Add(1)
	e := r.entry(o.key)
	if e.Digest != o.digest {
		e.Done = false
	}
	e.Version, e.UID, e.Digest, e.Sent = o.gvk.Version, string(w.Object.GetUID()), o.digest, ""
	e.Fields, e.Replicas = ownFields(w.Object, r.manager), ownsReplicas(w.Object, r.manager)
	e.Created = madeBy(e, w.Object, r.manager) || w.Created && !o.key.isNamespace()
	e.Absent = false
	e.Skipped = false
	e.Shared = w.Object.GetLabels()[LabelComponent] != r.p.Component ||
		w.Object.GetAnnotations()[AnnotationDigest] != o.digest
	r.setEntry(e)
	r.warnAll(w.Warnings)
	before := ""
	if action == ActionConfigured {
		before = failedAt(w.Object)
	}
	r.mu.Lock()
	r.answers[o.key] = answer{obj: w.Object, at: r.cfg.Now(), baseline: before}
	r.mu.Unlock()
	verdict := Judge(w.Object)
	if before != "" && verdict.State == StateFailed {
		verdict = pending("its controller has not seen the change yet")
	}
	r.note(o.key, o.gvk.Version, action, verdict.State, verdict.Message)
}

// applyRounds applies, and settles conflicts with other managers.
func (r *run) applyRounds(
	ctx context.Context, o *object, resource kube.Resource, body *unstructured.Unstructured,
) (*kube.Write, error) {
	force := false
	for round := 1; ; round++ {
		w, err := r.c.Apply(ctx, resource, body, kube.ApplyOptions{Manager: r.manager, Force: force})
		var api *kube.APIError
		if err == nil || !errors.As(err, &api) || api.Code != http.StatusConflict || len(api.Conflicts) == 0 {
			return w, err
		}
		if round == maxRounds {
			return nil, err
		}
		if force, err = r.settleConflict(ctx, o, resource, body, api); err != nil {
			return nil, err
		}
	}
}

// settleConflict decides about each field that another manager has: it is taken back by force, or left out.
func (r *run) settleConflict(
	ctx context.Context, o *object, resource kube.Resource, body *unstructured.Unstructured, conflict *kube.APIError,
) (force bool, err error) {
	kept, err := r.keepReplicas(ctx, o, resource, body, conflict)
	if err != nil {
		return false, err
	}
	e := r.entry(o.key)
	known := e.Digest != ""
	if !known { // it may have been ours, of an inventory that was lost
		live, err := r.c.GetMetadata(ctx, resource, o.key.namespace, o.key.name)
		if err != nil {
			return false, err
		}
		known = appliedBy(live, r.manager)
	}
	for _, c := range conflict.Conflicts {
		other, isComponent := strings.CutPrefix(c.Manager, managerPrefix)
		switch {
		case kept && c.Field == replicasField:
		case isComponent && o.key.isCRD():
			return false, r.skipCRD(o, other)
		case isComponent:
			if !o.key.isNamespace() || !identity(c.Field) {
				r.warn("%s: %s is left out, since component %s sets it too; this is component %s",
					o.key, c.Field, other, r.p.Component)
			}
			removeField(body.Object, c.Field)
		case !known:
			return false, conflict
		case r.isPeople(c.Manager):
			force = true
		case r.takeBack(&e, c, body):
			force = true
		default:
			r.warn("%s: %s is left to %q, which has taken it again", o.key, c.Field, c.Manager)
			removeField(body.Object, c.Field)
		}
	}
	r.setEntry(e)
	return force, nil
}

const replicasField = ".spec.replicas"

// keepReplicas leaves the number of replicas to whoever scales, if that is what the conflict is about.
func (r *run) keepReplicas(
	ctx context.Context, o *object, resource kube.Resource, body *unstructured.Unstructured, conflict *kube.APIError,
) (bool, error) {
	if !fromLive(o, true) ||
		!slices.ContainsFunc(conflict.Conflicts, func(c kube.Conflict) bool { return c.Field == replicasField }) {
		return false, nil
	}
	live, err := r.c.Get(ctx, resource, o.key.namespace, o.key.name)
	if err != nil {
		return false, err
	}
	if err := r.copyReplicas(ctx, o, body, live); err != nil {
		return false, err
	}
	return body.GetResourceVersion() != "", nil
}

func identity(field string) bool {
	return strings.HasSuffix(field, LabelComponent) || strings.HasSuffix(field, LabelManagedBy) ||
		strings.HasSuffix(field, AnnotationDigest)
}

func (r *run) isPeople(manager string) bool {
	return slices.Contains(r.cfg.PeopleManagers, manager)
}

// takeBack says whether a field is taken back by force: once for each value that the component wants there.
func (r *run) takeBack(e *entry, c kube.Conflict, body *unstructured.Unstructured) bool {
	want := fieldDigest(body.Object, c.Field)
	for i := range e.Taken {
		t := &e.Taken[i]
		if t.Manager != c.Manager || t.Field != c.Field {
			continue
		}
		if t.Digest == want {
			t.Count++
			return false
		}
		t.Digest, t.Count = want, 1
		return true
	}
	e.Taken = append(e.Taken, taken{Manager: c.Manager, Field: c.Field, Digest: want, Count: 1})
	return true
}

// skipCRD leaves a CRD to the component that applied it first.
func (r *run) skipCRD(o *object, other string) error {
	e := r.entry(o.key)
	e.Version, e.Digest, e.Skipped = o.gvk.Version, o.digest, true
	r.setEntry(e)
	r.note(o.key, o.gvk.Version, ActionSkipped, StateReady, "component "+other+" applies it")
	return errSkip
}

// skipped compares a CRD that was left to another component with what is declared here.
func (r *run) skipped(ctx context.Context, o *object, resource kube.Resource) error {
	if !o.key.isCRD() {
		return nil
	}
	live, err := r.c.Get(ctx, resource, "", o.key.name)
	if err != nil {
		return err
	}
	if mine, theirs := versionNames(o.obj), versionNames(live); !slices.Equal(mine, theirs) {
		r.warn("%s has versions %v in the cluster, where another component applies it, and %v in component %s",
			o.key, theirs, mine, r.p.Component)
	}
	return nil
}

func versionNames(crd *unstructured.Unstructured) []string {
	raw, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "spec", "versions")
	list, _ := raw.([]any)
	var out []string
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			name, _ := m["name"].(string)
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// refused handles a 422. If the same object would be accepted under another name, it is the change that is refused.
func (r *run) refused(
	ctx context.Context, o *object, resource kube.Resource, body *unstructured.Unstructured, cause error,
) (*kube.Write, error) {
	if o.key.isCRD() || o.key.isNamespace() || o.key.kind == kindPV || o.key.kind == kindPVC {
		return nil, cause // these are never made anew
	}
	live, err := r.c.Get(ctx, resource, o.key.namespace, o.key.name)
	if kube.IsNotFound(err) {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	trial := body.DeepCopy()
	trial.SetName("reconciler-trial-" + o.digest[:12])
	trial.SetResourceVersion("")
	if _, err := r.c.Create(ctx, resource, trial, r.manager, true); err != nil {
		return nil, cause
	}
	switch {
	case o.key.kind == kindJob && o.key.group == "batch" && o.obj.GetAnnotations()[AnnotationRecreate] != "true":
		return nil, r.leave(o, live)
	case o.obj.GetAnnotations()[AnnotationRecreate] == "true":
		return r.recreate(ctx, o, resource, body, live)
	default:
		return nil, Never(fmt.Errorf("%s can't be changed so in place; the annotation %s: \"true\" allows to delete and create it: %w",
			o.key, AnnotationRecreate, cause))
	}
}

// leave keeps an object as it is, since its kind can't be changed.
func (r *run) leave(o *object, live *unstructured.Unstructured) error {
	e := r.entry(o.key)
	e.Version, e.UID, e.Digest = o.gvk.Version, string(live.GetUID()), o.digest
	e.Sent, e.Fields = live.GetAnnotations()[AnnotationDigest], ownFields(live, r.manager)
	if e.Sent == "" {
		e.Shared = true // it isn't marked as ours, so only our fields can be compared
	}
	r.setEntry(e)
	r.mu.Lock()
	r.answers[o.key] = answer{obj: live, at: r.cfg.Now()}
	r.mu.Unlock()
	verdict := Judge(live)
	r.note(o.key, o.gvk.Version, ActionSkipped, verdict.State, "it can't be changed and is left as it is")
	return errSkip
}

// recreate deletes an object and creates it anew, as its annotation asks for.
func (r *run) recreate(
	ctx context.Context, o *object, resource kube.Resource, body, live *unstructured.Unstructured,
) (*kube.Write, error) {
	if err := r.confirm(ctx); err != nil {
		return nil, err
	}
	propagation := "Foreground"
	if o.key.kind == "StatefulSet" {
		propagation = "Orphan"
	}
	err := r.c.Delete(ctx, resource, o.key.namespace, o.key.name,
		kube.DeleteOptions{Propagation: propagation, UID: string(live.GetUID())})
	if err != nil && !kube.IsNotFound(err) {
		return nil, err
	}
	r.writes.Add(1)
	r.warn("%s was deleted and is created anew, as its annotation allows", o.key)
	if err := r.waitGone(ctx, resource, live); err != nil {
		return nil, err
	}
	fresh := body.DeepCopy()
	fresh.SetResourceVersion("")
	return r.applyRounds(ctx, o, resource, fresh)
}
