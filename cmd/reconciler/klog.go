package main

import (
	"strings"

	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// clientLog takes the lines of the Kubernetes client libraries, which have a log of their own, so that all lines of the
// process are of one kind.
type clientLog struct{ log *zap.Logger }

func routeClientLog(log *zap.Logger) {
	klog.LogToStderr(false)
	klog.SetOutput(clientLog{log: log})
}

// Write implements io.Writer: one call is one line.
func (c clientLog) Write(line []byte) (int, error) {
	c.log.Debug("kubernetes client", zap.String("text", strings.TrimSpace(string(line))))
	return len(line), nil
}
