package chart_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli/values"
	kubefake "helm.sh/helm/v3/pkg/kube/fake"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

// helmTemplate renders with Helm's own action, which is what `helm template` runs, with exactly the request's API list.
// The overrides are given as its --set takes them.
func helmTemplate(t *testing.T, req chart.Request, profileFile string, set ...string) (objects, crds []*unstructured.Unstructured) {
	t.Helper()
	loaded, err := loader.Load(req.Dir)
	require.NoError(t, err)
	options := values.Options{Values: set}
	if profileFile != "" {
		options.ValueFiles = []string{profileFile}
	}
	given, err := options.MergeValues(nil)
	require.NoError(t, err)
	version, err := chartutil.ParseKubeVersion(req.KubeVersion)
	require.NoError(t, err)
	install := action.NewInstall(&action.Configuration{
		Capabilities: &chartutil.Capabilities{
			KubeVersion: *version, APIVersions: req.APIVersions, HelmVersion: chartutil.DefaultCapabilities.HelmVersion,
		},
		KubeClient: &kubefake.PrintingKubeClient{Out: io.Discard},
		Releases:   storage.Init(driver.NewMemory()),
		Log:        func(string, ...any) {},
	})
	install.DryRun, install.DryRunOption, install.Replace, install.SkipCRDs = true, "client", true, true
	install.ReleaseName, install.Namespace, install.IsUpgrade = req.Component, req.Namespace, req.Upgrade
	release, err := install.Run(loaded, given)
	require.NoError(t, err)
	var files bytes.Buffer
	seen := map[string]bool{} // a subchart under two names brings its CRDs twice
	for _, crd := range loaded.CRDObjects() {
		if !seen[crd.Name] {
			fmt.Fprintf(&files, "---\n%s\n", crd.File.Data)
		}
		seen[crd.Name] = true
	}
	return readObjects(t, strings.NewReader(release.Manifest)), readObjects(t, &files)
}

// readObjects reads a manifest as kubectl does.
func readObjects(t *testing.T, manifest io.Reader) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(manifest, 4096); ; {
		var text json.RawMessage
		err := decoder.Decode(&text)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		if len(text) == 0 {
			continue // nothing but comments
		}
		object := &unstructured.Unstructured{}
		require.NoError(t, utiljson.Unmarshal(text, &object.Object))
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// requireEqual compares parsed objects in their order.
func requireEqual(t *testing.T, want, got []*unstructured.Unstructured) {
	t.Helper()
	require.Equal(t, names(want), names(got))
	for i := range want {
		require.Equal(t, want[i].Object, got[i].Object, names(want)[i])
	}
}

func TestAsHelmTemplate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		profile string
		values  map[string]any
		set     []string
	}{
		"plain":        {},
		"capabilities": {},
		"umbrella":     {},
		"plain/values": {
			profile: "production",
			values: map[string]any{
				"replicas": 1000000, "big": int64(9007199254740993), "enabled": false, "quoted": "false",
				"settings.removed": nil, "settings.nested": nil, "settings.level": "error", "image.tag": "07",
			},
			set: []string{
				"replicas=1000000", "big=9007199254740993", "enabled=false", "settings.removed=null",
				"settings.nested=null", "settings.level=error", "image.tag=07",
			},
		},
		"umbrella/values": {
			profile: "production",
			values:  map[string]any{"extra.enabled": true, "global.domainName": "example.com", "engine.new.key": "x", "spare.size": nil},
			set:     []string{"extra.enabled=true", "global.domainName=example.com", "engine.new.key=x", "spare.size=null"},
		},
		"umbrella/off": {
			values: map[string]any{"tags.extras": true, "spare.enabled": true, "global.tls": nil},
			set:    []string{"tags.extras=true", "spare.enabled=true", "global.tls=null"},
		},
	} {
		for _, upgrade := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/upgrade=%t", name, upgrade), func(t *testing.T) {
				t.Parallel()
				folder, _, _ := strings.Cut(name, "/")
				compare(t, testChart(folder), tc.profile, upgrade, tc.values, tc.set...)
			})
		}
	}
}

func compare(t *testing.T, dir, profile string, upgrade bool, overrides map[string]any, set ...string) *chart.Result {
	t.Helper()
	req := request(dir)
	req.Component, req.Profile, req.Upgrade, req.Values = filepath.Base(dir), profile, upgrade, overrides
	result, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
	require.NoError(t, err)
	var file string
	if profile != "" {
		file = filepath.Join(dir, "profile-"+profile+".yaml")
	}
	objects, crds := helmTemplate(t, req, file, set...)
	requireEqual(t, objects, result.Objects)
	requireEqual(t, crds, result.CRDs)
	return result
}

// TestDemoWorkspace renders every component of the demo's workspace under every profile that it has.
func TestDemoWorkspace(t *testing.T) {
	t.Parallel()
	versions, err := filepath.Glob("../../../deploy/demo/*/resources/*/Chart.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, versions, "the demo's workspace has no components")
	for _, file := range versions {
		dir := filepath.Dir(file)
		name := filepath.Base(filepath.Dir(filepath.Dir(dir))) + "/" + filepath.Base(dir)
		for _, profile := range append(profilesOf(t, dir), "") {
			for _, upgrade := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/upgrade=%t", name, profile, upgrade), func(t *testing.T) {
					t.Parallel()
					result := compare(t, dir, profile, upgrade,
						map[string]any{"global.domainName": "example.com"}, "global.domainName=example.com")
					require.NotEmpty(t, result.Objects)
					require.Empty(t, result.Warnings)
					if !upgrade {
						golden(t, filepath.Join("demo", name+"-"+cmp.Or(profile, "defaults")), result)
					}
				})
			}
		}
	}
	folders, err := filepath.Glob("../../../deploy/demo/*/installation/resources/crds")
	require.NoError(t, err)
	require.NotEmpty(t, folders)
	for _, folder := range folders {
		crds, err := chart.CRDs(folder)
		require.NoError(t, err)
		require.NotEmpty(t, crds)
	}
}

func profilesOf(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var profiles []string
	for _, entry := range entries {
		if name, ok := strings.CutPrefix(entry.Name(), "profile-"); ok {
			profiles = append(profiles, strings.TrimSuffix(name, ".yaml"))
		}
	}
	slices.Sort(profiles)
	return profiles
}
