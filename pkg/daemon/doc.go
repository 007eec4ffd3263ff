// Package daemon holds what all programs of this repository do alike: logger, listeners, health, metrics, HTTP clients with
// timeouts, flags with their environment and file, exit codes and the graceful stop. It knows neither the mothership nor the
// component reconcilers.
package daemon

import (
	"runtime/debug"
)

// version is set while linking: -ldflags "-X github.com/kyma-incubator/reconciler/pkg/daemon.version=1.2.3".
var version = ""

// Version is what --version prints: the released version, else the revision that the binary was built from, else "dev".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
				return "dev-" + setting.Value[:12]
			}
		}
	}
	return "dev"
}
