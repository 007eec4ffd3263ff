package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

// taskRunner plays the mothership for one component reconciler: it posts a task and takes its callbacks.
type taskRunner struct {
	reconciler, callbacks string
	kubeconfig            string
	client                *http.Client
	server                *http.Server
	serving               sync.WaitGroup
	fence                 int64

	mu     sync.Mutex
	finals map[string]chan reconcilerv1.CallbackMessage // by correlation ID
}

func startTaskRunner(ctx context.Context, reconcilerURL, kubeconfig string) (*taskRunner, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &taskRunner{
		reconciler: reconcilerURL, callbacks: "http://" + listener.Addr().String(), kubeconfig: kubeconfig,
		client: poolClient(4), finals: map[string]chan reconcilerv1.CallbackMessage{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /callback/{id}", r.callback)
	r.server = &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second}
	r.serving.Go(func() { _ = r.server.Serve(listener) }) // ends with close
	return r, nil
}

func (r *taskRunner) close() {
	_ = r.server.Close()
	r.serving.Wait()
	r.client.CloseIdleConnections()
}

// run reconciles one component and returns the time from sending the task to its success.
func (r *taskRunner) run(ctx context.Context, component string) (time.Duration, error) {
	r.fence++
	id := fmt.Sprintf("bench--%06d", r.fence)
	final := make(chan reconcilerv1.CallbackMessage, 1)
	r.mu.Lock()
	r.finals[id] = final
	r.mu.Unlock()
	task := reconcilerv1.Task{
		ComponentsReady: []string{"CRDs"}, Component: component, Namespace: component, Version: chartVersion, Profile: "production",
		Configuration: map[string]json.RawMessage{"global.domainName": json.RawMessage(`"bench.example.com"`)},
		Kubeconfig:    reconcilerv1.Secret(r.kubeconfig), CallbackURL: reconcilerv1.Secret(r.callbacks + "/callback/" + id),
		CorrelationID: id, SchedulingID: id, RuntimeID: "bench", Type: reconcilerv1.Reconcile,
		ComponentConfiguration: reconcilerv1.ComponentConfiguration{MaxRetries: 1},
		ConfigVersion:          1, Attempt: 1, Fence: r.fence, LeaseSeconds: 90, HeartbeatSeconds: 10,
	}
	start := time.Now()
	if err := postJSON(ctx, r.client, r.reconciler+"/v1/run", task); err != nil {
		return 0, err
	}
	select {
	case message := <-final:
		if message.Status != reconcilerv1.CallbackStatusSuccess {
			return 0, fmt.Errorf("task ended with %s: %s", message.Status, message.Error)
		}
		return time.Since(start), nil
	case <-time.After(2 * time.Minute):
		return 0, errors.New("task doesn't end")
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (r *taskRunner) callback(w http.ResponseWriter, request *http.Request) {
	var m reconcilerv1.CallbackMessage
	if err := json.NewDecoder(request.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	final := r.finals[request.PathValue("id")]
	r.mu.Unlock()
	if m.Status == reconcilerv1.CallbackStatusSuccess || m.Status == reconcilerv1.CallbackStatusError {
		select {
		case final <- m:
		default: // repeated
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}
