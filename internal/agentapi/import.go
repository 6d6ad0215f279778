package agentapi

// ImportDir holds what the pod of an import logs in with: below source the password,
// ca.crt, tls.crt and tls.key of the source, where there are, and below target the
// connection Secret of the cluster.
const ImportDir = "/etc/holdfast/import"

// ImportTask is what the pod of a Job is to do that fills the first database of a
// cluster from another server. It holds no secret.
type ImportTask struct {
	// Namespace, Name and UID of the cluster.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Source to read.
	Source ImportServer `json:"source"`
	// Files that the Secrets of the source are to bring below ImportDir/source, with the
	// field, the Secret and the key that each is of.
	Files map[string]string `json:"files,omitempty"`
	// SourceHash names what the spec declared of it, and DatabaseHash its host, port and
	// database alone: by that the import is recorded in the new database.
	SourceHash   string `json:"sourceHash"`
	DatabaseHash string `json:"databaseHash"`
	// Hosts of the members, one of which takes writes, and Port that they listen on.
	Hosts []string `json:"hosts"`
	Port  int      `json:"port"`
}

// ImportServer is a database of a server.
type ImportServer struct {
	Host     string `json:"host"`
	Port     int32  `json:"port"`
	Database string `json:"database"`
	User     string `json:"user"`
	// TLSMode is libpq's sslmode.
	TLSMode string `json:"tlsMode"`
}

// Keys of the ConfigMap <cluster>-import, in which the pod reports, beside
// RestoreKeyClusterUID, RestoreKeyPod, RestoreKeyStep, RestoreKeyProgress,
// RestoreKeyError and RestoreKeyPermanent.
const (
	// ImportKeySource is the SourceHash of the task.
	ImportKeySource = "source"
	// ImportKeyResult is a v1alpha1.ImportResult as JSON, when it is done.
	ImportKeyResult = "result"
)
