package plugin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// connectionKey is an entry of the connection Secret.
type connectionKey struct {
	name string
	// variable that the database's clients read it from; of a file, its path.
	variable string
	// secret is shown when it is asked for, and file is written to one.
	secret, file bool
}

type credentialsOptions struct {
	*session
	secrets   bool
	output    string
	directory string
}

func credentialsCommand(s *session) *cobra.Command {
	o := &credentialsOptions{session: s}
	cmd := &cobra.Command{
		Use:   "credentials NAME",
		Short: "Print how applications connect; the password only with --show-password",
		Example: `  kubectl holdfast credentials orders
  eval "$(kubectl holdfast credentials orders -o env --show-password)"
  eval "$(kubectl holdfast credentials config -o env --directory ~/.config/etcd)"`,
		Args: exactlyOne,
		RunE: o.runCredentials,
	}
	cmd.Flags().BoolVar(&o.secrets, "show-password", false, "print the password too, or the private key with -o json")
	cmd.Flags().StringVar(&o.directory, "directory", "", "write certificates, and the private key where there is one, to files in this directory")
	if err := cmd.MarkFlagDirname("directory"); err != nil {
		panic(err) // the flag was just made
	}
	outputFlag(cmd, &o.output, "", "env", "json", "uri")
	return cmd
}

func (o *credentialsOptions) runCredentials(cmd *cobra.Command, args []string) error {
	c, err := o.findCluster(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	data, err := o.readSecret(cmd, c)
	if err != nil {
		return err
	}
	k := kindOf(c)
	if o.directory != "" {
		if err := o.writeFiles(k, data); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "Written to %s: %s\n", o.directory, strings.Join(k.fileNames(data), ", "))
	}
	if err := o.printCredentials(cmd.OutOrStdout(), k, data); err != nil {
		return err
	}
	if hint := o.chooseHint(k, data, stdoutIsTerminal(cmd)); hint != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), hint)
	}
	return nil
}

// chooseHint says what was shown that is secret, or how what was not is had.
func (o *credentialsOptions) chooseHint(k kind, data map[string][]byte, terminal bool) string {
	password, key := k.hasHiddenKey(data, false), k.hasHiddenKey(data, true)
	switch {
	case o.secrets && terminal && (password || key && o.output == "json"):
		return "warning: a secret is on your screen and in its scroll-back"
	case password && !o.secrets && o.output == "":
		return "The password is shown with --show-password."
	case key && o.directory == "" && (o.output == "" || o.output == "env"):
		return "The certificate to log in by is written to files with --directory."
	}
	return ""
}

// hasHiddenKey says whether the Secret has what is shown on demand only: in a file, or
// by itself.
func (k kind) hasHiddenKey(data map[string][]byte, file bool) bool {
	return slices.ContainsFunc(k.connection, func(key connectionKey) bool {
		_, has := data[key.name]
		return has && key.secret && key.file == file
	})
}

// fileNames are the names of those that the Secret has.
func (k kind) fileNames(data map[string][]byte) []string {
	var names []string
	for _, key := range k.connection {
		if _, has := data[key.name]; has && key.file {
			names = append(names, key.name)
		}
	}
	return names
}

// writeFiles puts the files where only their owner reads them.
func (o *credentialsOptions) writeFiles(k kind, data map[string][]byte) error {
	var err error
	if o.directory, err = filepath.Abs(o.directory); err != nil {
		return err
	}
	if err := os.MkdirAll(o.directory, 0o700); err != nil {
		return fmt.Errorf("write certificates: %w", err)
	}
	for _, name := range k.fileNames(data) {
		path := filepath.Join(o.directory, name)
		// One that others may read keeps its mode when it is written over.
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write certificates: %w", err)
		}
		if err := os.WriteFile(path, data[name], 0o600); err != nil {
			return fmt.Errorf("write certificates: %w", err)
		}
	}
	return nil
}

func (o *credentialsOptions) readSecret(cmd *cobra.Command, c v1alpha1.Cluster) (map[string][]byte, error) {
	name := c.CommonStatus().CredentialsSecret
	if name == "" {
		return nil, fmt.Errorf("%s has no credentials yet: see kubectl holdfast status %s", c.GetName(), flagHint(c))
	}
	var secret corev1.Secret
	err := o.client.Get(cmd.Context(), client.ObjectKey{Namespace: c.GetNamespace(), Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("secret %s is missing: the operator makes it again unless %s is suspended (kubectl holdfast reconcile %s)", name, c.GetName(), flagHint(c))
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("read secret %s: %w: it needs the right to get secrets in namespace %s", name, err, c.GetNamespace())
	case err != nil:
		return nil, fmt.Errorf("read secret %s: %w", name, err)
	}
	return secret.Data, nil
}

func (o *credentialsOptions) printCredentials(w io.Writer, k kind, data map[string][]byte) error {
	uri, err := o.shownURI(k, data)
	if err != nil {
		return err
	}
	var lines []string
	switch o.output {
	case "json":
		shown := o.shownValues(k, data)
		shown["uri"] = uri
		return writeEncoded(w, "json", shown)
	case "uri":
		lines = []string{uri}
	case "env":
		lines = o.exportLines(k, data)
	default:
		values := o.shownValues(k, data)
		var cells [][]cell
		for _, key := range k.connection {
			if value, has := values[key.name]; has && !key.file {
				cells = append(cells, []cell{{key.name, plain}, {value, plain}})
			}
		}
		lines = style{}.alignCells(append(cells, []cell{{"uri", plain}, {uri, plain}}))
	}
	_, err = io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// shownValues are the values that may be shown, by name.
func (o *credentialsOptions) shownValues(k kind, data map[string][]byte) map[string]string {
	values := map[string]string{}
	for _, key := range k.connection {
		if value, has := data[key.name]; has && (!key.secret || o.secrets) {
			values[key.name] = string(value)
		}
	}
	return values
}

// exportLines are lines for a shell. Of files they have the paths.
func (o *credentialsOptions) exportLines(k kind, data map[string][]byte) []string {
	values := o.shownValues(k, data)
	var lines []string
	for _, key := range k.connection {
		value, has := values[key.name]
		if key.file {
			_, has = data[key.name]
			value, has = filepath.Join(o.directory, key.name), has && o.directory != ""
		}
		if has && key.variable != "" {
			lines = append(lines, "export "+key.variable+"="+quoteForShell(value))
		}
	}
	if k.environment != nil {
		for _, variable := range k.environment(o.directory != "") {
			lines = append(lines, "export "+variable[0]+"="+quoteForShell(variable[1]))
		}
	}
	return lines
}

// shownURI is the URI without the password, unless that is asked for.
func (o *credentialsOptions) shownURI(k kind, data map[string][]byte) (string, error) {
	full := string(data["uri"])
	password := slices.ContainsFunc(k.connection, func(key connectionKey) bool { return key.secret && !key.file })
	if o.secrets || full == "" || !password {
		return full, nil
	}
	u, err := url.Parse(full)
	if err != nil || u.User == nil {
		// The parser's complaint would quote the password.
		return "", fmt.Errorf("the connection Secret's uri cannot be shown without its password: it is no URI")
	}
	u.User = url.User(u.User.Username())
	return u.String(), nil
}

// quoteForShell quotes for a POSIX shell.
func quoteForShell(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || slices.Contains([]rune("-_./:@%+,="), r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
