package reconciler

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

// scrubber replaces the secrets of one task by ***. It is a second line of defence: texts should not hold them in the
// first place.
type scrubber struct{ replacer *strings.Replacer }

const shortestSecret = 6

var (
	inKubeconfig = regexp.MustCompile(`(?:token|password|client-key-data)["']?\s*:\s*["']?([^\s"',}]+)`)
	soundsSecret = regexp.MustCompile(`(?i)secret|passw|token|credential|private|apikey|accesskey`)
)

// newScrubber knows the token of the callback URL, the credentials of the kubeconfig, and the configuration values whose
// key sounds like a secret.
func newScrubber(task reconcilerv1.Task) *scrubber {
	var secrets []string
	add := func(s string) {
		if len(s) >= shortestSecret {
			secrets = append(secrets, s, base64.StdEncoding.EncodeToString([]byte(s)))
		}
	}
	if u, err := url.Parse(task.CallbackURL.Reveal()); err == nil {
		for _, values := range u.Query() {
			for _, value := range values {
				add(value)
				add(url.QueryEscape(value))
			}
		}
	}
	for _, match := range inKubeconfig.FindAllStringSubmatch(task.Kubeconfig.Reveal(), -1) {
		add(match[1])
	}
	for key, raw := range task.Configuration {
		var text string
		if soundsSecret.MatchString(key) && json.Unmarshal(raw, &text) == nil {
			add(text)
		}
	}
	// The longest first, so that no secret shows the rest of a longer one.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(secrets))
	for _, secret := range secrets {
		pairs = append(pairs, secret, "***")
	}
	return &scrubber{replacer: strings.NewReplacer(pairs...)}
}

func (s *scrubber) text(text string) string { return s.replacer.Replace(text) }
