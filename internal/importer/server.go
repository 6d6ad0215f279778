package importer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// Server is a database, and how it is logged in to.
type Server struct {
	// Side names it in errors.
	Side string
	// Hosts to try in order, and the Port of each.
	Hosts                    []string
	Port                     int
	Database, User, Password string
	// TLSMode is libpq's sslmode. RootCert, Cert and Key are files; empty for none.
	TLSMode, RootCert, Cert, Key string
	// Writable says that only a server that takes writes will do.
	Writable bool
}

// connectTimeout is how long connecting to one address may take.
const connectTimeout = 15 * time.Second

// keepalives of programs that log in: of a server that has vanished they learn within about
// a minute. The rest of the connection is in the environment.
const keepalives = "--dbname=keepalives_idle=30 keepalives_interval=10 keepalives_count=3"

// settings of libpq by their environment variables and by their keywords.
func (s Server) settings() [][3]string {
	ports := make([]string, len(s.Hosts))
	for i := range s.Hosts {
		ports[i] = strconv.Itoa(s.Port)
	}
	all := [][3]string{
		{"PGHOST", "host", strings.Join(s.Hosts, ",")}, {"PGPORT", "port", strings.Join(ports, ",")}, {"PGDATABASE", "dbname", s.Database},
		{"PGUSER", "user", s.User}, {"PGPASSWORD", "password", s.Password}, {"PGSSLMODE", "sslmode", s.TLSMode},
		{"PGSSLROOTCERT", "sslrootcert", s.RootCert}, {"PGSSLCERT", "sslcert", s.Cert}, {"PGSSLKEY", "sslkey", s.Key},
		{"PGCONNECT_TIMEOUT", "connect_timeout", strconv.Itoa(int(connectTimeout.Seconds()))}, {"PGAPPNAME", "application_name", "holdfast-import"},
	}
	if s.Writable {
		all = append(all, [3]string{"PGTARGETSESSIONATTRS", "target_session_attrs", "read-write"})
	}
	return all
}

// environment of a program that logs in: a password is in no argument.
func (s Server) environment() []string {
	env := []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH"), "HOME=/tmp", "PGPASSFILE=/dev/null"}
	if s.Writable {
		// A session whose client is gone keeps the lock of an import no longer than needed.
		env = append(env, "PGOPTIONS=-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3")
	}
	for _, setting := range s.settings() {
		if setting[2] != "" {
			env = append(env, setting[0]+"="+setting[2])
		}
	}
	return env
}

// connectionConfig of the settings.
func (s Server) connectionConfig() (*pgx.ConnConfig, error) {
	var words []string
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	for _, setting := range s.settings() {
		if setting[2] != "" {
			words = append(words, setting[1]+"='"+quote.Replace(setting[2])+"'")
		}
	}
	config, err := pgx.ParseConfig(strings.Join(words, " "))
	if err != nil {
		return nil, newPermanent("%s: the settings of the connection are refused: check the CA and the client certificate", s.Side) // the error may quote the password
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return config, nil
}

// connect tries for a while what may pass.
func (s Server) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := s.connectionConfig()
	if err != nil {
		return nil, err
	}
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 5, Cap: 15 * time.Second}
	var conn *pgx.Conn
	waited := wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		conn, err = pgx.ConnectConfig(ctx, config)
		if err == nil {
			return true, nil
		}
		if err = explainConnection(s.Side, err); backup.InVain(err) {
			return false, err
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return conn, waited
}

// split makes a server of each host, whether it takes writes or not.
func (s Server) split() []Server {
	var each []Server
	for _, host := range s.Hosts {
		one := s
		one.Hosts, one.Writable = []string{host}, false
		each = append(each, one)
	}
	return each
}

// connectOnce tries once.
func (s Server) connectOnce(ctx context.Context) (*pgx.Conn, error) {
	config, err := s.connectionConfig()
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, config)
}

// closeConnection ends a session, and with it the transaction that it may be in.
func closeConnection(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// ReadServers reads what the operator mounts: the source, and the database to fill.
func ReadServers(task agentapi.ImportTask, dir, scratch string) (source, target Server, err error) {
	for _, file := range slices.Sorted(maps.Keys(task.Files)) {
		if !exists(filepath.Join(dir, "source", file)) {
			return source, target, newPermanent("%s is missing: add the key, or name another Secret", task.Files[file])
		}
	}
	source = Server{
		Side: "the source", Hosts: []string{task.Source.Host}, Port: int(task.Source.Port), Database: task.Source.Database,
		User: task.Source.User, TLSMode: task.Source.TLSMode,
	}
	target = Server{Side: "the new database", Hosts: task.Hosts, Port: task.Port, TLSMode: "verify-full", Writable: true}
	target.RootCert = filepath.Join(dir, "target", "ca.crt")
	for name, to := range map[string]*string{"username": &target.User, "password": &target.Password, "dbname": &target.Database} {
		if *to, err = readFile(filepath.Join(dir, "target", name)); err != nil {
			return source, target, err
		}
	}
	if source.Password, err = readFile(filepath.Join(dir, "source", "password")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return source, target, err
	}
	source.Password = strings.TrimRight(source.Password, "\r\n")
	if path := filepath.Join(dir, "source", "ca.crt"); exists(path) {
		source.RootCert = path
	}
	if path := filepath.Join(dir, "source", "tls.crt"); exists(path) {
		// libpq wants a key that no other user can read.
		source.Cert, source.Key = path, filepath.Join(scratch, "source.key")
		key, err := readFile(filepath.Join(dir, "source", "tls.key"))
		if err != nil {
			return source, target, err
		}
		if err := os.WriteFile(source.Key, []byte(key), 0o600); err != nil {
			return source, target, fmt.Errorf("keep the key of the client certificate: %w", err)
		}
	}
	return source, target, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func readFile(path string) (string, error) {
	data, err := os.ReadFile(path) //nolint:gosec // below a directory that the operator mounts
	if err != nil {
		return "", fmt.Errorf("read what to log in with: %w", err)
	}
	return string(data), nil
}
