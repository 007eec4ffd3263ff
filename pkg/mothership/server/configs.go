package server

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// contractVersion is the version of the predecessor's model that clients may still ask for.
const contractVersion = 1

// GetClusterConfig shows what was declared; values that were marked as secret are not shown.
func (s *server) GetClusterConfig(ctx context.Context, request mothershipv1.GetClusterConfigRequestObject) (mothershipv1.GetClusterConfigResponseObject, error) {
	config, err := s.config(ctx, request.RuntimeID, request.ConfigVersion)
	return mothershipv1.GetClusterConfig200JSONResponse(config), err
}

// GetClusterConfigs is the other spelling of GetClusterConfig.
func (s *server) GetClusterConfigs(ctx context.Context, request mothershipv1.GetClusterConfigsRequestObject) (mothershipv1.GetClusterConfigsResponseObject, error) {
	config, err := s.config(ctx, request.RuntimeID, request.ConfigVersion)
	return mothershipv1.GetClusterConfigs200JSONResponse(config), err
}

func (s *server) config(ctx context.Context, runtimeID string, version int64) (mothershipv1.KymaConfig, error) {
	if err := checkID("cluster", runtimeID); err != nil {
		return mothershipv1.KymaConfig{}, err
	}
	snapshot, err := s.cfg.Store.Config(ctx, runtimeID, version)
	if err != nil {
		return mothershipv1.KymaConfig{}, err
	}
	components, err := showComponents(snapshot.Kyma.Components)
	return mothershipv1.KymaConfig{
		Version: snapshot.Kyma.Version, Profile: snapshot.Kyma.Profile, Components: components,
		Administrators: orEmpty(snapshot.Kyma.Administrators),
	}, err
}

// GetClusterState shows a cluster's newest state, or the one that a run or an operation belongs to.
func (s *server) GetClusterState(ctx context.Context, request mothershipv1.GetClusterStateRequestObject) (mothershipv1.GetClusterStateResponseObject, error) {
	filter := mothership.StateFilter{
		RuntimeID: valueOf(request.Params.RuntimeID), SchedulingID: valueOf(request.Params.SchedulingID), CorrelationID: valueOf(request.Params.CorrelationID),
	}
	if filter == (mothership.StateFilter{}) {
		return nil, invalid("runtimeID", "one of runtimeID, schedulingID and correlationID is needed")
	}
	given := 0
	for _, id := range []string{filter.RuntimeID, filter.SchedulingID, filter.CorrelationID} {
		if id == "" {
			continue
		}
		if err := checkID("state of", id); err != nil {
			return nil, err
		}
		given++
	}
	if given > 1 {
		return nil, invalid("runtimeID", "only one of runtimeID, schedulingID and correlationID can be given")
	}
	view, err := s.cfg.Store.State(ctx, filter)
	if err != nil {
		return nil, err
	}
	return showState(view)
}

func showState(view mothership.StateView) (mothershipv1.GetClusterState200JSONResponse, error) {
	var state mothershipv1.GetClusterState200JSONResponse
	cluster, config, status := &state.Cluster, &state.Configuration, &state.Status
	cluster.Version, cluster.RuntimeID, cluster.Created = view.Cluster.Version, view.Cluster.RuntimeID, view.Cluster.Created
	cluster.Runtime = mothershipv1.RuntimeInput{Name: view.Cluster.Runtime.Name, Description: view.Cluster.Runtime.Description}
	cluster.Metadata, cluster.Contract = showMetadata(view.Cluster.Metadata), contractVersion

	components, err := showComponents(view.Configuration.Kyma.Components)
	if err != nil {
		return state, err
	}
	config.Version, config.ClusterVersion, config.RuntimeID = view.Configuration.Version, view.Configuration.ClusterVersion, view.Configuration.RuntimeID
	config.KymaVersion, config.KymaProfile = view.Configuration.Kyma.Version, view.Configuration.Kyma.Profile
	config.Components, config.Administrators = components, orEmpty(view.Configuration.Kyma.Administrators)
	config.Contract, config.Deleted, config.Created = contractVersion, view.Configuration.Deleted, view.Configuration.Created

	status.ID, status.RuntimeID, status.Created = view.Status.ID, view.Status.RuntimeID, view.Status.Created
	status.ClusterVersion, status.ConfigVersion = view.Status.ClusterVersion, view.Status.ConfigVersion
	status.Status, status.Deleted = mothershipv1.Status(view.Status.Status), view.Status.Deleted
	return state, nil
}

func showComponents(components []mothership.Component) ([]mothershipv1.Component, error) {
	shown := make([]mothershipv1.Component, len(components))
	for i, c := range components {
		shown[i] = mothershipv1.Component{
			Component: c.Name, URL: c.URL, Namespace: c.Namespace, Version: c.Version,
			Configuration: make([]mothershipv1.Configuration, len(c.Configuration)),
		}
		for j, entry := range c.Configuration {
			value := json.RawMessage(`"***"`)
			if !entry.Secret {
				var err error
				if value, err = json.Marshal(entry.Value); err != nil {
					return nil, fmt.Errorf("show entry %q of component %q: %w", entry.Key, c.Name, err)
				}
			}
			shown[i].Configuration[j] = mothershipv1.Configuration{Key: entry.Key, Value: value, Secret: entry.Secret}
		}
	}
	return shown, nil
}

func showMetadata(m mothership.Metadata) reconcilerv1.Metadata {
	return reconcilerv1.Metadata{
		GlobalAccountID: m.GlobalAccountID, SubAccountID: m.SubAccountID, InstanceID: m.InstanceID, Region: m.Region,
		ServiceID: m.ServiceID, ServicePlanID: m.ServicePlanID, ServicePlanName: m.ServicePlanName, ShootName: m.ShootName,
	}
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
