//! Ways in: keys of every kind, the agent, jump hosts.

use std::fs;

use windlass::event::{Asker, Bus, Event};
use windlass::inventory::Inventory;
use windlass::reach;
use windlass::ssh::{Caps, Connector, Session, SshError, Target};

use super::server::{Agent, Place, keygen};

async fn says_hello(session: &Session) {
    let output = session
        .run("a test", "echo hello", Caps::default())
        .await
        .unwrap();
    assert_eq!(output.text(), "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_kind_are_let_in() {
    let place = Place::new();
    let server = place.server("");
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = place.path(&format!("key_{kind}"));
        keygen(&key, kind, "");
        fs::copy(key.with_extension("pub"), place.path("authorized_keys")).unwrap();
        let mut target = server.target();
        target.identity = Some(key);
        let session = place
            .connector(place.options())
            .connect(&target)
            .await
            .unwrap_or_else(|error| panic!("{kind}: {error}\n{}", server.log()));
        says_hello(&session).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_keys_of_the_home_folder_are_tried() {
    let place = Place::new();
    let server = place.server("");
    fs::create_dir_all(place.path("home/.ssh")).unwrap();
    fs::copy(place.path("id"), place.path("home/.ssh/id_ed25519")).unwrap();
    let mut target = server.target();
    target.identity = None;
    let session = place
        .connector(place.options())
        .connect(&target)
        .await
        .unwrap();
    says_hello(&session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passphrase_is_asked_for_once_however_many_hosts_take_the_key() {
    let place = Place::new();
    let server = place.server("");
    keygen(&place.path("locked"), "ed25519", "open sesame");
    fs::copy(place.path("locked.pub"), place.path("authorized_keys")).unwrap();
    let mut target = server.target();
    target.identity = Some(place.path("locked"));
    let (connector, person) = place.asking(place.options(), &[("passphrase", "open sesame")]);
    let all = (0..4).map(|_| connector.connect(&target));
    for session in futures_util::future::join_all(all).await {
        says_hello(&session.unwrap()).await;
    }
    assert_eq!(person.asked().len(), 1, "{:?}", person.asked());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_signs_for_keys_of_every_kind() {
    let place = Place::new();
    let server = place.server("");
    let agent = Agent::start(place.path("agent"));
    let mut options = place.options();
    options.agent = Some(agent.socket.clone());
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = place.path(&format!("key_{kind}"));
        keygen(&key, kind, "");
        agent.add(&key);
        fs::copy(key.with_extension("pub"), place.path("authorized_keys")).unwrap();
        let mut target = server.target();
        target.identity = None;
        let session = place
            .connector(options.clone())
            .connect(&target)
            .await
            .unwrap_or_else(|error| panic!("{kind}: {error}\n{}", server.log()));
        says_hello(&session).await;
    }
    // An agent that is gone is no reason not to use a file.
    options.agent = Some(place.path("no agent"));
    fs::copy(place.path("id.pub"), place.path("authorized_keys")).unwrap();
    says_hello(
        &place
            .connector(options)
            .connect(&server.target())
            .await
            .unwrap(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_behind_a_jump_host_share_one_connection_to_it_and_each_key_is_verified() {
    let place = Place::new();
    let (jump, behind) = (place.server(""), place.server(""));
    let mut target = behind.target();
    let mut over = jump.target();
    over.host = "bastion".into();
    target.jumps = vec![over];
    let connector = place.connector(place.options());
    let all = (0..4).map(|_| connector.connect(&target));
    let sessions = futures_util::future::join_all(all).await;
    for session in sessions {
        says_hello(&session.unwrap()).await;
    }
    assert_eq!((jump.connections(), behind.connections()), (1, 4));

    // Two in a row, and a host that is not known at the end or on the way.
    let middle = place.server("");
    let mut long = behind.target();
    long.jumps = vec![jump.target(), middle.target()];
    says_hello(&connector.connect(&long).await.unwrap()).await;
    let stranger = place.stranger(&["host_ed25519"], "");
    let mut unknown = stranger.target();
    unknown.jumps = vec![jump.target()];
    let error = connector.connect(&unknown).await.unwrap_err().to_string();
    assert!(error.contains("is not known"), "{error}");
    let mut unknown = behind.target();
    unknown.jumps = vec![stranger.target()];
    let error = connector.connect(&unknown).await.unwrap_err().to_string();
    assert!(
        error.contains("jump host") && error.contains("is not known"),
        "{error}"
    );

    // A jump host that forwards nothing, and one that finds nothing.
    let closed = place.server("AllowTcpForwarding no");
    let mut target = behind.target();
    target.jumps = vec![closed.target()];
    let error = connector.connect(&target).await.unwrap_err().to_string();
    assert!(error.contains("AllowTcpForwarding"), "{error}");
    let mut target = behind.target();
    target.jumps = vec![jump.target()];
    target.port = Some(1);
    let error = connector.connect(&target).await.unwrap_err().to_string();
    assert!(
        error.contains("the jump host makes no connection"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ssh_configuration_names_address_key_and_way_and_what_it_cannot_have_is_refused() {
    let place = Place::new();
    let (jump, behind) = (place.server(""), place.server(""));
    let text = format!(
        "Host deep\n  HostName 127.0.0.1\n  Port {}\n  User root\n  IdentityFile {id}\n  \
         ProxyJump door\nHost door\n  HostName 127.0.0.1\n  Port {}\n  User root\n  IdentityFile \
         {id}\nHost piped\n  ProxyCommand nc %h %p\n",
        behind.address.port(),
        jump.address.port(),
        id = place.path("id").display(),
    );
    fs::write(place.path("ssh_config"), text).unwrap();
    let named = |name: &str| Target {
        host: name.into(),
        address: name.into(),
        ..Target::default()
    };
    let connector = place.connector(place.options());
    says_hello(&connector.connect(&named("deep")).await.unwrap()).await;
    assert_eq!((jump.connections(), behind.connections()), (1, 1));
    let error = connector.connect(&named("piped")).await.unwrap_err();
    assert!(matches!(error, SshError::Config { .. }), "{error:?}");
    let error = error.to_string();
    assert!(
        error.contains("ssh_config:13") && error.contains("ProxyCommand"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_hosts_are_reached_at_once_and_those_that_are_not_are_counted_and_named() {
    let place = Place::new();
    let server = place.server("");
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let text = format!(
        "[cluster]\nname = \"t\"\n[defaults]\nuser = \"root\"\naddress = \"127.0.0.1\"\n\
         [hosts.here]\nconnection = \"local\"\n\
         [hosts.closed]\nssh = {{ port = {closed} }}\n\
         [hosts.there]\nssh = {{ port = {}, identity = {:?} }}\n",
        server.address.port(),
        place.path("id"),
    );
    let inventory = Inventory::parse(&place.path("inventory.toml"), &text).unwrap();
    let bus = Bus::new("test");
    let mailbox = bus.subscribe();
    let asker = Asker::new(bus.emitter(), false, false);
    let connector = Connector::new(place.options(), asker, bus.emitter());
    let hosts: Vec<_> = inventory.hosts.iter().collect();
    let reached = reach::each(
        &inventory,
        &hosts,
        &connector,
        &bus.emitter(),
        async |_, session| Ok(session),
    )
    .await;
    let names: Vec<_> = reached
        .iter()
        .map(|(host, result)| (host.name.as_str(), result.is_ok()))
        .collect();
    assert_eq!(names, [("here", true), ("closed", false), ("there", true)]);
    let failure = reached[1].1.as_ref().unwrap_err();
    assert_eq!(failure.step.as_deref(), Some("connect"));
    let counted = bus.hosts();
    assert_eq!(counted["closed"].unreachable, 1);
    assert_eq!((counted["here"].ok, counted["there"].unreachable), (0, 0));
    let mut states: Vec<_> = mailbox
        .drain()
        .iter()
        .filter_map(|envelope| match &envelope.event {
            Event::HostState { state, .. } => {
                Some(format!("{} {state}", envelope.scope.host.as_ref()?))
            }
            _ => None,
        })
        .collect();
    states.sort();
    assert_eq!(
        states,
        ["closed unreachable", "here reached", "there reached"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_key_lets_its_owner_in_and_is_copied_once() {
    let place = Place::new();
    let home = place.path("there");
    fs::create_dir_all(home.join(".ssh")).unwrap();
    let authorized = home.join(".ssh/authorized_keys");
    fs::write(&authorized, "# no line end").unwrap();
    let server = place.server(&format!(
        "SetEnv HOME={}\nForceCommand HOME={} exec sh -c \"$SSH_ORIGINAL_COMMAND\"",
        home.display(),
        home.display()
    ));
    keygen(&place.path("new"), "ed25519", "");
    let key = reach::public_key(&place.path("home"), Some(&place.path("new"))).unwrap();
    let connector = place.connector(place.options());
    let session = connector.connect(&server.target()).await.unwrap();
    assert!(reach::copy_key(&session, &key).await.unwrap());
    assert!(!reach::copy_key(&session, &key).await.unwrap());
    let text = fs::read_to_string(&authorized).unwrap();
    assert_eq!(text, format!("# no line end\n{key}\n"));
    fs::copy(&authorized, place.path("authorized_keys")).unwrap();
    let mut target = server.target();
    target.identity = Some(place.path("new"));
    says_hello(&connector.connect(&target).await.unwrap()).await;
}
