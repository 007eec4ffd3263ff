package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// sample is a body with what the code and what the OpenAPI document say of it. They differ only where a reason is given.
type sample struct {
	body     string
	field    string // named in the error; empty if the code takes the body
	document bool   // whether the document takes it
	reason   string
}

// The document describes what should be sent; the code takes what real clients send.
func TestCorpusOfClusters(t *testing.T) {
	t.Parallel()
	quoted, err := json.Marshal(goodKubeconfig)
	require.NoError(t, err)
	components := func(list string) string {
		return `{"runtimeID":"c1","kubeconfig":K,"kymaConfig":{"version":"1","components":` + list + `}}`
	}
	f := &fake{put: func(mothership.Input) (mothership.ClusterView, error) {
		return view(mothership.StatusReconcilePending), nil
	}}
	const versions, keys = "what a version can be depends on where its component comes from", "an escaped dot belongs to a name"
	checkCorpus(t, f, "Cluster", "POST /v1/clusters", map[string]sample{
		"least":                     {body: `{"runtimeID":"c1","kubeconfig":K}`, document: true},
		"F27 no components":         {body: components(`[]`), document: true},
		"null components":           {body: components(`null`), document: true},
		"unknown fields":            {body: `{"runtimeID":"c1","kubeconfig":K,"x":{"y":1}}`, document: true},
		"one component":             {body: components(`[{"component":"a"}]`), document: true},
		"values of all types":       {body: components(`[{"component":"a","configuration":[{"key":"a","value":false},{"key":"b","value":{"c":[1,"2",true]}}]}]`), document: true},
		"null as value":             {body: components(`[{"component":"a","configuration":[{"key":"a","value":null}]}]`), reason: "clients send null for what they don't have"},
		"name of 50":                {body: components(`[{"component":"` + strings.Repeat("a", 50) + `"}]`), document: true},
		"odd name":                  {body: components(`[{"component":"a.b_c-D9"}]`), document: true},
		"kubeConfig":                {body: `{"runtimeID":"c1","kubeConfig":K}`, reason: "names are taken in any case"},
		"RUNTIMEID":                 {body: `{"RUNTIMEID":"c1","kubeconfig":K}`, reason: "names are taken in any case"},
		"null texts":                {body: `{"runtimeID":"c1","kubeconfig":K,"runtimeInput":null,"metadata":null,"kymaConfig":null}`, reason: "clients send null for what they don't have"},
		"null namespace":            {body: components(`[{"component":"a","namespace":null,"version":null,"URL":null}]`), reason: "clients send null for what they don't have"},
		"entry without key":         {body: components(`[{"component":"a","configuration":[{"value":1}]}]`), reason: "only the name of a component is needed"},
		"no runtimeID":              {body: `{"kubeconfig":K}`, field: "runtimeID"},
		"null runtimeID":            {body: `{"runtimeID":null,"kubeconfig":K}`, field: "runtimeID"},
		"number as runtimeID":       {body: `{"runtimeID":1,"kubeconfig":K}`, field: "runtimeID"},
		"no kubeconfig":             {body: `{"runtimeID":"c1"}`, field: "kubeconfig"},
		"object as kubeconfig":      {body: `{"runtimeID":"c1","kubeconfig":{}}`, field: "kubeconfig"},
		"text as components":        {body: components(`"a"`), field: "kymaConfig.components"},
		"text as component":         {body: components(`["a"]`), field: "kymaConfig.components"},
		"number as component":       {body: components(`[{"component":1}]`), field: "component"},
		"component without name":    {body: components(`[{}]`), field: "kymaConfig.components[0].component"},
		"null component":            {body: components(`[null]`), field: "kymaConfig.components[0].component"},
		"text as secret":            {body: components(`[{"component":"a","configuration":[{"key":"k","secret":"yes"}]}]`), field: "secret"},
		"number as administrator":   {body: `{"runtimeID":"c1","kubeconfig":K,"kymaConfig":{"administrators":[1]}}`, field: "administrators"},
		"empty runtimeID":           {body: `{"runtimeID":"","kubeconfig":K}`, field: "runtimeID"},
		"runtimeID with a slash":    {body: `{"runtimeID":"a/b","kubeconfig":K}`, field: "runtimeID"},
		"runtimeID of 65":           {body: `{"runtimeID":"` + strings.Repeat("a", 65) + `","kubeconfig":K}`, field: "runtimeID"},
		"empty kubeconfig":          {body: `{"runtimeID":"c1","kubeconfig":""}`, field: "kubeconfig"},
		"broken kubeconfig":         {body: `{"runtimeID":"c1","kubeconfig":"x"}`, field: "kubeconfig", document: true, reason: "the document knows no kubeconfigs"},
		"name of 51":                {body: components(`[{"component":"` + strings.Repeat("a", 51) + `"}]`), field: "kymaConfig.components[0].component"},
		"name with a slash":         {body: components(`[{"component":"../a"}]`), field: "kymaConfig.components[0].component"},
		"name with a dash at end":   {body: components(`[{"component":"a-"}]`), field: "kymaConfig.components[0].component"},
		"twice":                     {body: components(`[{"component":"a"},{"component":"b"},{"component":"A"}]`), field: "kymaConfig.components[2].component", document: true, reason: "can't be said in a document"},
		"CRDs":                      {body: components(`[{"component":"crds"}]`), field: "kymaConfig.components[0].component", document: true, reason: "can't be said in a document"},
		"cleaner":                   {body: components(`[{"component":"Cleaner"}]`), field: "kymaConfig.components[0].component", document: true, reason: "can't be said in a document"},
		"bad namespace":             {body: components(`[{"component":"a","namespace":"A_b"}]`), field: "kymaConfig.components[0].namespace"},
		"no version anywhere":       {body: `{"runtimeID":"c1","kubeconfig":K,"kymaConfig":{"components":[{"component":"a","version":"1"},{"component":"b"}]}}`, field: "kymaConfig.components[1].version", document: true, reason: "can't be said in a document"},
		"no version but git":        {body: `{"runtimeID":"c1","kubeconfig":K,"kymaConfig":{"components":[{"component":"a","URL":"https://x/y.git"}]}}`, document: true},
		"version with a path":       {body: `{"runtimeID":"c1","kubeconfig":K,"kymaConfig":{"version":"../x"}}`, field: "kymaConfig.version", document: true, reason: versions},
		"version ..":                {body: `{"runtimeID":"c1","kubeconfig":K,"kymaConfig":{"version":".."}}`, field: "kymaConfig.version", document: true, reason: versions},
		"version with a space":      {body: components(`[{"component":"a","version":"1 2"}]`), field: "kymaConfig.components[0].version", document: true, reason: versions},
		"version of a component":    {body: components(`[{"component":"a","version":"a/b"}]`), field: "kymaConfig.components[0].version", document: true, reason: versions},
		"version of git":            {body: components(`[{"component":"a","version":"release/1.2","URL":"https://x/y.git"}]`), document: true},
		"version out of git":        {body: components(`[{"component":"a","version":"../x","URL":"https://x/y.git"}]`), field: "kymaConfig.components[0].version", document: true, reason: versions},
		"versions":                  {body: components(`[{"component":"a","version":"PR-1234"},{"component":"b","version":"v2.0.0-rc.1+4"},{"component":"c","version":"main-0a1b2c"}]`), document: true},
		"key with an empty part":    {body: components(`[{"component":"a","configuration":[{"key":"b"},{"key":"a..b","value":1}]}]`), field: "kymaConfig.components[0].configuration[1].key", document: true, reason: keys},
		"key without end":           {body: components(`[{"component":"a","configuration":[{"key":"` + strings.Repeat("a.", 600) + `a","value":1}]}]`), field: "kymaConfig.components[0].configuration[0].key", document: true, reason: keys},
		"key with a dot in front":   {body: components(`[{"component":"a","configuration":[{"key":".a","value":1}]}]`), field: "kymaConfig.components[0].configuration[0].key", document: true, reason: keys},
		"key with a dot at the end": {body: components(`[{"component":"a","configuration":[{"key":"a.","value":1}]}]`), field: "kymaConfig.components[0].configuration[0].key", document: true, reason: keys},
		"keys":                      {body: components(`[{"component":"a","configuration":[{"key":"global.domainName","value":1},{"key":"a.b\\.c","value":1},{"key":"a\\.","value":1},{"key":"a-b_c/d.e","value":1}]}]`), document: true},
		"NUL":                       {body: `{"runtimeID":"c1","kubeconfig":K,"runtimeInput":{"name":"a\u0000b"}}`, field: "runtimeInput.name", document: true, reason: "can't be said in a document"},
		"no version, no components": {body: `{"runtimeID":"c1","kubeconfig":K,"kymaConfig":{"version":""}}`, document: true},
	}, string(quoted))
}

func TestCorpusOfStatusUpdates(t *testing.T) {
	t.Parallel()
	f := &fake{setStatus: func(string, mothership.StatusRequest) (mothership.ClusterView, error) {
		return view(mothership.StatusReady), nil
	}}
	checkCorpus(t, f, "StatusUpdate", "PUT /v1/clusters/c1/status", map[string]sample{
		"ready":           {body: `{"status":"ready"}`, document: true},
		"pending":         {body: `{"status":"reconcile_pending"}`, document: true},
		"disabled":        {body: `{"status":"reconcile_disabled"}`, document: true},
		"until":           {body: `{"status":"reconcile_disabled","until":"2030-01-01T00:00:00Z"}`, document: true},
		"null until":      {body: `{"status":"reconcile_disabled","until":null}`, document: true},
		"Status":          {body: `{"Status":"ready"}`, reason: "names are taken in any case"},
		"nothing":         {body: `{}`, field: "status"},
		"null":            {body: `{"status":null}`, field: "status"},
		"unknown":         {body: `{"status":"fine"}`, field: "status"},
		"number":          {body: `{"status":1}`, field: "status"},
		"no time":         {body: `{"status":"reconcile_disabled","until":"soon"}`, field: "body"},
		"error":           {body: `{"status":"error"}`, field: "status", document: true, reason: "only three can be set"},
		"until for ready": {body: `{"status":"ready","until":"2030-01-01T00:00:00Z"}`, field: "until", document: true, reason: "can't be said in a document"},
	}, "")
}

func TestCorpusOfCallbacks(t *testing.T) {
	t.Parallel()
	f := &fake{callbacks: func([]mothership.Callback) ([]mothership.CallbackResult, error) {
		return []mothership.CallbackResult{{}}, nil
	}}
	checkCorpus(t, f, "reconcilerv1 CallbackMessage", "POST /v1/operations/s/callback/c?token=t", map[string]sample{
		"F58 as sent":                  {body: `{"status":"running","error":"","retryID":"6b1d","processingDuration":0}`, document: true},
		"F58 error missing":            {body: `{"status":"running"}`, reason: "some senders leave out what they don't have"},
		"F58 error null":               {body: `{"status":"running","error":null,"retryID":null,"processingDuration":null}`, reason: "clients send null for what they don't have"},
		"F58 extra fields":             {body: `{"status":"failed","error":"x","repository":{"url":""},"manifest":null}`, reason: "some senders leave out what they don't have"},
		"F58 success":                  {body: `{"status":"success","processingDuration":61234}`, reason: "some senders leave out what they don't have"},
		"F58 fraction":                 {body: `{"status":"success","processingDuration":1.5,"heartbeatSeconds":0.5}`, reason: "some senders leave out what they don't have"},
		"F58 all":                      {body: `{"status":"error","error":"x","retryID":"r","runnerID":"n","processingDuration":1,"released":false,"logs":["l"],"warnings":["w"],"resources":[{"apiVersion":"v1","kind":"K","namespace":"","name":"n","action":"created","state":"ready","message":""}]}`, document: true},
		"F58 with Resources of theirs": {body: `{"status":"success","error":"","retryID":"r","processingDuration":61234,"more":1}`, document: true},
		"F58 null lists":               {body: `{"status":"error","logs":null,"warnings":null,"resources":null}`, reason: "clients send null for what they don't have"},
		"F58 status missing":           {body: `{}`, field: "status"},
		"F58 status null":              {body: `{"status":null}`, field: "status"},
		"F58 status empty":             {body: `{"status":""}`, field: "status"},
		"F58 status unknown":           {body: `{"status":"finished"}`, field: `"finished"`},
		"F58 status as number":         {body: `{"status":3}`, field: "status"},
		"F58 duration as text":         {body: `{"status":"running","processingDuration":"1"}`, field: "processingDuration"},
		"F58 error as object":          {body: `{"status":"error","error":{}}`, field: "error"},
		"F58 resources as text":        {body: `{"status":"error","resources":"x"}`, field: "resources"},
	}, "")
}

func checkCorpus(t *testing.T, f *fake, schemaName, route string, corpus map[string]sample, kubeconfig string) {
	t.Helper()
	schema := schemaOf(t, schemaName)
	ask := api(t, f)
	method, path, _ := strings.Cut(route, " ")
	for name, test := range corpus {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := strings.ReplaceAll(test.body, ":K", ":"+kubeconfig)
			status, answer, header := ask(method, path, body)
			if test.field == "" {
				require.Equal(t, 200, status, answer)
			} else {
				require.Contains(t, requireError(t, 400, "invalid_request", status, answer, header), test.field)
			}
			var value any
			require.NoError(t, json.Unmarshal([]byte(body), &value))
			err := schema.VisitJSON(value, openapi3.EnableFormatValidation())
			require.Equal(t, test.document, err == nil, "the document says: %v", err)
			if (test.field == "") != test.document {
				require.NotEmpty(t, test.reason, "code and document differ without a reason")
			}
		})
	}
}

// schemaOf returns a schema of the document; "reconcilerv1 X" is one of the document that it refers to.
func schemaOf(t *testing.T, name string) *openapi3.Schema {
	t.Helper()
	file := "../../../api/mothershipv1/openapi.yaml"
	if rest, ok := strings.CutPrefix(name, "reconcilerv1 "); ok {
		file, name = "../../../api/reconcilerv1/openapi.yaml", rest
	}
	loader := openapi3.NewLoader()
	loader.IsExternalRefsAllowed = true
	document, err := loader.LoadFromFile(file)
	require.NoError(t, err)
	require.NoError(t, document.Validate(loader.Context))
	require.Contains(t, document.Components.Schemas, name)
	return document.Components.Schemas[name].Value
}
