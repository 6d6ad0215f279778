package v1alpha1

// TLSSpec says which certificates and CAs of your own are used.
type TLSSpec struct {
	// CertificateSecretRef names a Secret in the same namespace with the
	// certificate that the database shows to clients, as cert-manager writes it:
	// tls.crt with intermediate certificates, tls.key, and in ca.crt the root.
	// It must carry the DNS names of the cluster's Services for clients and of
	// its members, each ending in .<namespace>.svc. A renewed certificate is
	// used without a restart; one that cannot be used is reported as
	// Stalled, and the last good one stays. MySQL refuses it: it shows clients
	// the members' own certificate. Default: the members' own certificate.
	// +optional
	CertificateSecretRef *SecretReference `json:"certificateSecretRef,omitempty"`

	// CASecretRef names a Secret in the same namespace with the certificate
	// and the key, tls.crt and tls.key, of the root CA that signs the members'
	// own certificates. A client with a certificate signed by it can become a
	// member: use a CA of this cluster only. When the CA changes, members
	// trust the new one before it signs. Default: a CA that Holdfast makes and
	// renews.
	// +optional
	CASecretRef *SecretReference `json:"caSecretRef,omitempty"`
}

// SecretReference names a Secret in the same namespace.
type SecretReference struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="must be the name of a Secret: lower-case letters, digits, dashes and dots, such as store-keys"
	Name string `json:"name"`
}

// SecretNames are the Secrets that the spec names.
func (t *TLSSpec) SecretNames() []string {
	var names []string
	for _, ref := range []*SecretReference{t.CertificateSecretRef, t.CASecretRef} {
		if ref != nil {
			names = append(names, ref.Name)
		}
	}
	return names
}
