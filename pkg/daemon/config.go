package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// BindEnvAndFile fills the flags of cmd that weren't given on the command line: from the environment (flag database-url with
// prefix MOTHERSHIP is MOTHERSHIP_DATABASE_URL), else from the YAML file (key database-url; no file if the name is empty).
// So a flag beats the environment and that beats the file. A key of the file that is no flag of any command of the program is
// an error that names it; flags of other commands are allowed, so that all commands can share one file.
// Lists are separated by commas in the environment and are lists, or NAME: VALUE mappings for NAME=VALUE flags, in the file.
// All errors are [UsageError].
func BindEnvAndFile(cmd *cobra.Command, prefix, file string) error {
	values, err := readConfig(file)
	if err != nil {
		return &UsageError{Err: err}
	}
	known := flagsOf(cmd.Root())
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !known[key] {
			return Usagef("configuration file %q: unknown key %q", file, key)
		}
	}
	var failed error
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || failed != nil || flag.Name == "help" || flag.Name == "version" {
			return
		}
		name := prefix + "_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if text, ok := os.LookupEnv(name); ok {
			if err := setFlag(cmd.Flags(), flag, text, splitList(text)); err != nil {
				failed = Usagef("environment variable %s: %w", name, err)
			}
			return
		}
		value, ok := values[flag.Name]
		if !ok {
			return
		}
		list, err := textsOf(value)
		if err == nil {
			err = setFlag(cmd.Flags(), flag, strings.Join(list, ","), list)
		}
		if err != nil {
			failed = Usagef("configuration file %q: key %q: %w", file, flag.Name, err)
		}
	})
	return failed
}

func setFlag(flags *pflag.FlagSet, flag *pflag.Flag, text string, list []string) error {
	if slice, ok := flag.Value.(pflag.SliceValue); ok {
		flag.Changed = true
		return slice.Replace(list)
	}
	if err := flags.Set(flag.Name, text); err != nil {
		// The text itself may be a secret; what the flag wants isn't.
		return fmt.Errorf("not a valid %s", flag.Value.Type())
	}
	return nil
}

func splitList(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

func readConfig(file string) (map[string]any, error) {
	if file == "" {
		return map[string]any{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("configuration file %q: %w", file, err)
	}
	values := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if err := decoder.Decode(&values); err != nil {
		return nil, fmt.Errorf("configuration file %q: want a mapping of flag names to values", file)
	}
	return values, nil
}

func textsOf(value any) ([]string, error) {
	switch value := value.(type) {
	case string:
		return []string{value}, nil
	case bool, json.Number:
		return []string{fmt.Sprint(value)}, nil
	case []any:
		var list []string
		for _, item := range value {
			texts, err := textsOf(item)
			if err != nil || len(texts) != 1 {
				return nil, errors.New("want a list of plain values")
			}
			list = append(list, texts[0])
		}
		return list, nil
	case map[string]any:
		var list []string
		for _, name := range slices.Sorted(maps.Keys(value)) {
			texts, err := textsOf(value[name])
			if err != nil || len(texts) != 1 {
				return nil, errors.New("want a mapping to plain values")
			}
			list = append(list, name+"="+texts[0])
		}
		return list, nil
	default:
		return nil, errors.New("has no value")
	}
}

func flagsOf(cmd *cobra.Command) map[string]bool {
	known := map[string]bool{}
	add := func(flag *pflag.Flag) { known[flag.Name] = true }
	cmd.Flags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
	for _, sub := range cmd.Commands() {
		for name := range flagsOf(sub) {
			known[name] = true
		}
	}
	delete(known, "help")
	delete(known, "version")
	delete(known, "config")
	return known
}
