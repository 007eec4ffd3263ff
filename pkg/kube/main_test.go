package kube_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kyma-incubator/reconciler/test/kubetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, kubetest.IgnoreConnections()...)
}
