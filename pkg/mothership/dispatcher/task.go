package dispatcher

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// task puts an assignment into the words of the wire.
func (d *Dispatcher) task(a *mothership.Assignment) ([]byte, error) {
	configuration := make(map[string]json.RawMessage, len(a.Configuration))
	for _, entry := range a.Configuration {
		value, err := json.Marshal(entry.Value)
		if err != nil {
			return nil, fmt.Errorf("encode the configuration entry %q: %w", entry.Key, err)
		}
		configuration[entry.Key] = value
	}
	if a.Component == mothership.ComponentCleaner {
		configuration["delete_strategy"] = json.RawMessage(`"all"`)
	}
	body, err := json.Marshal(reconcilerv1.Task{
		Attempt:                int64(a.Attempt),
		CallbackURL:            reconcilerv1.Secret(d.callbackURL(a)),
		Component:              a.Component,
		ComponentConfiguration: reconcilerv1.ComponentConfiguration{MaxRetries: d.cfg.MaxRetries},
		ComponentsReady:        a.ComponentsReady,
		ConfigVersion:          a.ConfigVersion,
		Configuration:          configuration,
		CorrelationID:          a.CorrelationID,
		DependsOn:              a.DependsOn,
		Fence:                  a.Fence,
		HeartbeatSeconds:       a.Heartbeat.Seconds(),
		Kubeconfig:             reconcilerv1.Secret(a.Kubeconfig.Reveal()),
		LeaseSeconds:           a.Lease.Seconds(),
		Metadata: reconcilerv1.Metadata{
			GlobalAccountID: a.Metadata.GlobalAccountID, SubAccountID: a.Metadata.SubAccountID, InstanceID: a.Metadata.InstanceID,
			Region: a.Metadata.Region, ServiceID: a.Metadata.ServiceID, ServicePlanID: a.Metadata.ServicePlanID,
			ServicePlanName: a.Metadata.ServicePlanName, ShootName: a.Metadata.ShootName,
		},
		Namespace:    a.Namespace,
		Profile:      a.Profile,
		RuntimeID:    a.RuntimeID,
		SchedulingID: a.SchedulingID,
		Type:         reconcilerv1.TaskType(a.Type),
		URL:          a.URL,
		Version:      a.Version,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the task: %w", err)
	}
	return body, nil
}

func (d *Dispatcher) callbackURL(a *mothership.Assignment) string {
	return d.cfg.AdvertiseURL + "/v1/operations/" + url.PathEscape(a.SchedulingID) + "/callback/" + url.PathEscape(a.CorrelationID) +
		"?token=" + url.QueryEscape(a.Token)
}
