package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// identity names the files that say who is who in one cluster.
type identity struct {
	ca, servingCert, servingKey string
	serviceAccountKey           string
	tokens                      string
	kubeconfig                  string
	token                       string // the administrator's
}

// writeIdentity makes a certificate authority, the API server's certificate
// signed by it, the key of the service accounts' tokens, and the one user: an
// administrator with a token.
func writeIdentity(dir string) (identity, error) {
	id := identity{
		ca:                filepath.Join(dir, "ca.crt"),
		servingCert:       filepath.Join(dir, "serving.crt"),
		servingKey:        filepath.Join(dir, "serving.key"),
		serviceAccountKey: filepath.Join(dir, "service-account.key"),
		tokens:            filepath.Join(dir, "tokens.csv"),
		kubeconfig:        filepath.Join(dir, "kubeconfig"),
	}
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return id, err
	}
	id.token = hex.EncodeToString(secret)
	users := fmt.Sprintf("%s,admin,admin,system:masters\n", id.token)
	if err := os.WriteFile(id.tokens, []byte(users), 0o600); err != nil {
		return id, err
	}
	if err := writeCertificates(id); err != nil {
		return id, fmt.Errorf("make certificates: %w", err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return id, err
	}
	return id, writeKey(id.serviceAccountKey, key)
}

func writeCertificates(id identity) error {
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "testcluster"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	if err := writePEM(id.ca, "CERTIFICATE", caDER); err != nil {
		return err
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serving := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:    ca.NotBefore,
		NotAfter:     ca.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost", "kubernetes", "kubernetes.default.svc"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, serving, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	if err := writePEM(id.servingCert, "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(id.servingKey, key)
}

func writeKey(path string, key any) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// writeKubeconfig writes the administrator's, which holds all it needs.
func writeKubeconfig(id identity, port int) error {
	ca, err := os.ReadFile(id.ca)
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: testcluster
clusters:
- name: testcluster
  cluster:
    server: https://127.0.0.1:%d
    certificate-authority-data: %s
users:
- name: admin
  user:
    token: %s
contexts:
- name: testcluster
  context:
    cluster: testcluster
    user: admin
`, port, base64.StdEncoding.EncodeToString(ca), id.token)
	return os.WriteFile(id.kubeconfig, []byte(text), 0o600)
}
