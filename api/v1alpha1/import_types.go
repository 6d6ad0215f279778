package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ImportSource is a database of another PostgreSQL server that a new cluster's
// first database is filled from.
type ImportSource struct {
	// Host is the DNS name or IP address of the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Za-z_]([-.:0-9A-Za-z_]*[0-9A-Za-z_])?$')",message="must be a DNS name or an IP address, such as db.example.com"
	Host string `json:"host"`

	// Port of the source. Default: 5432.
	// +optional
	// +kubebuilder:default=5432
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// Database of the source to copy, all of it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^[:cntrl:]]+$')",message="must be the name of a database, without control characters"
	Database string `json:"database"`

	// User to log in to the source as. It must be able to read all of the database.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^[:cntrl:]]+$')",message="must be the name of a role, without control characters"
	User string `json:"user"`

	// PasswordSecretRef names a Secret in the same namespace that holds the
	// password of the user. Default: no password, as with a client certificate.
	// +optional
	PasswordSecretRef *ImportPassword `json:"passwordSecretRef,omitempty"`

	// TLS says how the connection to the source is encrypted. Default: it must be, and
	// the certificate of the source is not verified.
	// +optional
	TLS *ImportTLS `json:"tls,omitempty"`
}

// ImportPassword is a key of a Secret in the same namespace.
type ImportPassword struct {
	SecretReference `json:",inline"`

	// Key that holds the password. Default: password.
	// +optional
	// +kubebuilder:default=password
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="must be a key of the Secret, such as password"
	Key string `json:"key,omitempty"`
}

// ImportTLSMode is how the connection to the source is encrypted, in the words of
// libpq's sslmode.
//
// +kubebuilder:validation:Enum=disable;require;verify-ca;verify-full
type ImportTLSMode string

// Modes of TLS.
const (
	ImportTLSDisable    ImportTLSMode = "disable"
	ImportTLSRequire    ImportTLSMode = "require"
	ImportTLSVerifyCA   ImportTLSMode = "verify-ca"
	ImportTLSVerifyFull ImportTLSMode = "verify-full"
)

// ImportTLS is how the connection to the source is encrypted.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || !(self.mode in ['verify-ca','verify-full']) || has(self.caSecretRef)",message="caSecretRef is needed to verify the certificate of the source: name a Secret with ca.crt, or use the mode require"
type ImportTLS struct {
	// Mode: disable, require, verify-ca or verify-full, as of libpq's sslmode.
	// Default: require.
	// +optional
	// +kubebuilder:default=require
	Mode ImportTLSMode `json:"mode,omitempty"`

	// CASecretRef names a Secret in the same namespace with the CA certificate that
	// the source's certificate is verified with, in ca.crt. Default: none, the
	// certificate is not verified.
	// +optional
	CASecretRef *SecretReference `json:"caSecretRef,omitempty"`

	// CertificateSecretRef names a Secret in the same namespace with the client
	// certificate to show to the source, in tls.crt and tls.key. Default: none.
	// +optional
	CertificateSecretRef *SecretReference `json:"certificateSecretRef,omitempty"`
}

// SecretNames are the Secrets that an import names, by the field that does.
func (i *ImportSource) SecretNames() map[string]string {
	names := map[string]string{}
	if i.PasswordSecretRef != nil {
		names["passwordSecretRef"] = i.PasswordSecretRef.Name
	}
	if t := i.TLS; t != nil && t.CASecretRef != nil {
		names["tls.caSecretRef"] = t.CASecretRef.Name
	}
	if t := i.TLS; t != nil && t.CertificateSecretRef != nil {
		names["tls.certificateSecretRef"] = t.CertificateSecretRef.Name
	}
	return names
}

// Steps of an import, as its pod reports them.
const (
	ImportStepConnecting = "Connecting"
	ImportStepChecking   = "Checking"
	ImportStepCopying    = "Copying"
	ImportStepVerifying  = "Verifying"
	ImportStepConfirming = "Confirming"
)

// SuffixImport of the names of what an import needs while it lasts.
const SuffixImport = "-import"

// ImportFieldManager is the field manager of what the pod of an import writes: the
// ConfigMap <cluster>-import.
const ImportFieldManager = "holdfast-import"

// ImportStatus is the state of the import that a cluster begins with.
type ImportStatus struct {
	// StartTime is when the import was recorded, before the first member was made.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is when the data was copied and verified. From then on
	// spec.bootstrap.import has no effect.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Step that is under way: Connecting, Checking, Copying, Verifying or Confirming.
	// +optional
	Step string `json:"step,omitempty"`
	// Progress of the step, such as 12 of 40 tables, 310 MiB.
	// +optional
	Progress string `json:"progress,omitempty"`
	// Error of the last try. Nothing of it is left in the database.
	// +optional
	Error string `json:"error,omitempty"`
	// Result of the import, once it is done.
	// +optional
	Result *ImportResult `json:"result,omitempty"`
}

// ImportResult is what an import has copied.
type ImportResult struct {
	// SourceVersion is the version of the source, such as 15.18.
	SourceVersion string `json:"sourceVersion"`
	// Tables, their rows, sequences and large objects that were counted on both sides.
	Tables       int64 `json:"tables"`
	Rows         int64 `json:"rows"`
	Sequences    int64 `json:"sequences"`
	LargeObjects int64 `json:"largeObjects"`
	// Size of the dump as SQL, in bytes.
	Size resource.Quantity `json:"size"`
}

// Done says whether the import is complete.
func (i *ImportStatus) Done() bool { return i != nil && i.CompletionTime != nil }
