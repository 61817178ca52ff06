//! Formats `show process`.

use srv6d_api::state::ProcessView;

pub fn render(view: &ProcessView) -> String {
    let privileges = &view.privileges;
    let yes = |is: bool| if is { "yes" } else { "no" };
    let names = privileges.capabilities.join(" ");
    let capabilities = if names.is_empty() { "none" } else { &names };
    let advice = if view.least_privilege {
        ""
    } else {
        "it has more than it needs; fix: start it without --unconfined (SRV6D_UNCONFINED), and see its log\n"
    };
    format!(
        "pid {}, user {}, {} threads, {} guard processes, {} of {} files open\n\
         capabilities  {capabilities}\nNoNewPrivs    {}\nseccomp       {}\nLandlock      {}\n{advice}",
        view.pid,
        privileges.uid,
        privileges.threads,
        view.guards,
        view.open_files,
        view.open_files_limit,
        yes(privileges.no_new_privs),
        yes(privileges.seccomp),
        yes(privileges.landlock),
    )
}
