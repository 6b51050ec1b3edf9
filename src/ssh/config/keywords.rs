//! Which keywords ssh_config(5) has, and what each is to us. A table; nothing else.

/// What a keyword is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It is followed.
    Used,
    /// It decides where the connection goes or whom we trust, and is not supported; but these
    /// values of it mean what happens anyway.
    Refused(&'static [&'static str], &'static str),
    /// Ciphers and logins.
    NotFollowed,
    /// Without meaning here.
    Cosmetic,
    /// Not in the table.
    Unknown,
}

/// What to do instead of a proxy command.
const JUMP: &str = "use ProxyJump, or `ssh = { jump = … }` in the inventory";

/// Looks a keyword up, lower case.
pub(super) fn class(keyword: &str) -> Class {
    match keyword {
        "addressfamily"
        | "connecttimeout"
        | "globalknownhostsfile"
        | "hashknownhosts"
        | "hostname"
        | "identitiesonly"
        | "identityagent"
        | "identityfile"
        | "ignoreunknown"
        | "port"
        | "proxyjump"
        | "stricthostkeychecking"
        | "user"
        | "userknownhostsfile" => Class::Used,
        "proxycommand" => Class::Refused(&["none"], JUMP),
        "knownhostscommand" => Class::Refused(
            &["none"],
            "write the keys to a file and name it in UserKnownHostsFile",
        ),
        "hostkeyalias" => Class::Refused(
            &[],
            "name the key in the inventory: `ssh = { host_key = \"SHA256:…\" }`",
        ),
        "canonicalizehostname" => Class::Refused(
            &["no", "false", "none"],
            "write the whole name in HostName, or as `address` in the inventory",
        ),
        "refuseconnection" => Class::Refused(&[], "the configuration forbids this host"),
        "bindaddress" | "bindinterface" => {
            Class::Refused(&[], "let the machine's routes choose the interface")
        }
        "revokedhostkeys" => Class::Refused(
            &["none"],
            "write the keys with @revoked to a file of known hosts",
        ),
        "casignaturealgorithms"
        | "certificatefile"
        | "challengeresponseauthentication"
        | "ciphers"
        | "enablesshkeysign"
        | "gssapiauthentication"
        | "gssapiclientidentity"
        | "gssapidelegatecredentials"
        | "gssapikexalgorithms"
        | "gssapikeyexchange"
        | "gssapirenewalforcesrekey"
        | "gssapiserveridentity"
        | "gssapitrustdns"
        | "hostbasedacceptedalgorithms"
        | "hostbasedauthentication"
        | "hostbasedkeytypes"
        | "hostkeyalgorithms"
        | "kbdinteractiveauthentication"
        | "kbdinteractivedevices"
        | "kexalgorithms"
        | "macs"
        | "nohostauthenticationforlocalhost"
        | "numberofpasswordprompts"
        | "passwordauthentication"
        | "pkcs11provider"
        | "preferredauthentications"
        | "pubkeyacceptedalgorithms"
        | "pubkeyacceptedkeytypes"
        | "pubkeyauthentication"
        | "rekeylimit"
        | "requiredrsasize"
        | "securitykeyprovider"
        | "verifyhostkeydns" => Class::NotFollowed,
        "addkeystoagent"
        | "batchmode"
        | "canonicaldomains"
        | "canonicalizefallbacklocal"
        | "canonicalizemaxdots"
        | "canonicalizepermittedcnames"
        | "channeltimeout"
        | "checkhostip"
        | "clearallforwardings"
        | "compression"
        | "compressionlevel"
        | "connectionattempts"
        | "controlmaster"
        | "controlpath"
        | "controlpersist"
        | "dynamicforward"
        | "enableescapecommandline"
        | "escapechar"
        | "exitonforwardfailure"
        | "fingerprinthash"
        | "forkafterauthentication"
        | "forwardagent"
        | "forwardx11"
        | "forwardx11timeout"
        | "forwardx11trusted"
        | "gatewayports"
        | "ipqos"
        | "localcommand"
        | "localforward"
        | "loglevel"
        | "logverbose"
        | "obscurekeystroketiming"
        | "permitlocalcommand"
        | "permitremoteopen"
        | "protocol"
        | "proxyusefdpass"
        | "remotecommand"
        | "remoteforward"
        | "requesttty"
        | "sendenv"
        | "serveralivecountmax"
        | "serveraliveinterval"
        | "sessiontype"
        | "setenv"
        | "stdinnull"
        | "streamlocalbindmask"
        | "streamlocalbindunlink"
        | "syslogfacility"
        | "tag"
        | "tcpkeepalive"
        | "tunnel"
        | "tunneldevice"
        | "updatehostkeys"
        | "usekeychain"
        | "useroaming"
        | "versionaddendum"
        | "visualhostkey"
        | "warnweakcrypto"
        | "xauthlocation" => Class::Cosmetic,
        _ => Class::Unknown,
    }
}
